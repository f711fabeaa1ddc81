"""The photographs: which there are, which view of each is taken, and the pixels of a view.

A view is a box of the photograph, in fractions of its sides, that is resized to a square: the whole picture squeezed
into it, a centre crop, or a random crop. Teacher and student see the same views, so each view has a number, and
vectors are stored by that number.
"""

import gzip
import io
import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

COCO = "coco_train2017_256"  # the folder of COCO's photographs
CHUNK = 256  # views in one file of vectors
# Sets of views in the order in which they are worth their arithmetic, and how many files of each. Choices are made on
# the first 2,048 photographs of val; the rest follows when there is something to report.
ORDER = (("val-whole", 8), ("train-0", None), ("bare-0", None), ("val-whole", None), ("val-centre", None),
         ("flickr-val-whole", None), ("test-whole", None), ("test-centre", None),
         ("train-1", None), ("bare-1", None))  # fmt: skip
SPLITS = {
    "val": "coco_karpathy_val",
    "test": "coco_karpathy_test",
    "flickr-val": "flickr8k_dev",
    "flickr": "flickr8k_test",
}


@dataclass(frozen=True)
class View:
    """A box of a photograph as ``(left, top, right, bottom)`` in fractions of its sides, mirrored or not."""

    file: str
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    mirrored: bool = False

    def open(self, root: Path) -> Image.Image:
        """The box, at the size that it has in the file."""
        with Image.open(root / self.file) as photo:
            picture = photo.convert("RGB")
        width, height = picture.size
        left, top, right, bottom = self.box
        picture = picture.crop((round(left * width), round(top * height), round(right * width), round(bottom * height)))
        return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.mirrored else picture


class Photos:
    """Names, captions and true sizes of the photographs below a folder.

    ``captions.jsonl.gz`` has a line for each captioned photograph: ``file``, ``split``, ``captions``. Other COCO
    photographs in the folder have no captions and serve for distillation. ``sizes.json`` maps the name of a photograph
    that is stored as a square to its true width and height.
    """

    def __init__(self, root: Path):
        self.root = root
        with gzip.open(root / "captions.jsonl.gz", "rt") as lines:
            rows = [json.loads(line) for line in lines]
        self.captions: dict[str, list[str]] = {row["file"]: row["captions"] for row in rows}
        self.split: dict[str, str] = {row["file"]: row["split"] for row in rows}
        sizes = json.loads((root / "sizes.json").read_text()) if (root / "sizes.json").is_file() else {}
        self.sizes: dict[str, tuple[int, int]] = {f"{COCO}/{name}.jpg": tuple(size) for name, size in sizes.items()}
        self.all_coco = sorted(f"{COCO}/{path.name}" for path in (root / COCO).glob("*.jpg"))

    def in_split(self, name: str) -> list[str]:
        """The photographs of ``train`` (COCO alone: Flickr8k is non-commercial), ``bare`` (without captions), or one of
        SPLITS."""
        if name == "bare":
            return [file for file in self.all_coco if file not in self.split]
        if name == "train":
            return [file for file in self.all_coco if self.split.get(file) == "train"]
        return sorted(file for file, split in self.split.items() if split == SPLITS[name])

    def aspect(self, file: str) -> float:
        """Width over height of the photograph as it was taken."""
        if file in self.sizes:
            width, height = self.sizes[file]
        else:
            with Image.open(self.root / file) as photo:
                width, height = photo.size
        return width / height

    def whole(self, file: str) -> Image.Image:
        """The photograph in its true shape, at the height or width that it has in the file."""
        picture, aspect = View(file).open(self.root), self.aspect(file)
        width, height = picture.size
        if file in self.sizes:
            shape = (round(height * aspect), height) if aspect > 1 else (width, round(width / aspect))
            picture = picture.resize(shape, Image.Resampling.BICUBIC)
        return picture

    def centre(self, file: str) -> View:
        """The largest square in the middle, as most CLIPs see a picture."""
        aspect = self.aspect(file)
        width, height = min(1.0, 1 / aspect), min(1.0, aspect)
        return View(file, ((1 - width) / 2, (1 - height) / 2, (1 + width) / 2, (1 + height) / 2))

    def random_view(self, file: str, rng: random.Random) -> View:
        """The whole picture in one case of two, else a crop; its sides are squeezed by up to 1.6, as 16:9 film is."""
        mirrored = rng.random() < 0.5
        if rng.random() < 0.5:
            return View(file, mirrored=mirrored)
        aspect, area, squeeze = self.aspect(file), rng.uniform(0.3, 1.0), np.exp(rng.uniform(np.log(0.8), np.log(1.6)))
        width = min(1.0, float(np.sqrt(area * squeeze / aspect)))
        height = min(1.0, float(np.sqrt(area / squeeze * aspect)))
        left, top = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
        return View(file, (left, top, left + width, top + height), mirrored)

    def views(self, name: str) -> list[View]:
        """The views of a set: ``val-whole``, ``val-centre``, ``train-0``, ``bare-2``; always the same ones."""
        split, _, kind = name.rpartition("-")
        files = self.in_split(split)
        if kind == "whole":
            return [View(file) for file in files]
        if kind == "centre":
            return [self.centre(file) for file in files]
        rng = random.Random(f"0 {split} {kind}")
        rng.shuffle(files)
        return [self.random_view(file, rng) for file in files]


def degrade(picture: Image.Image, size: int, rng: random.Random) -> Image.Image:
    """A view as film would show it: often small, soft, compressed, too dark or pale; size x size."""
    if rng.random() < 0.3:
        small = rng.randint(size // 3, size)
        picture = picture.resize((small, small), Image.Resampling.BILINEAR)
    if rng.random() < 0.2:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.5)))
    if rng.random() < 0.5:
        for change, most in ((ImageEnhance.Brightness, 0.35), (ImageEnhance.Contrast, 0.35), (ImageEnhance.Color, 0.5)):
            picture = change(picture).enhance(rng.uniform(1 - most, 1 + most))
    picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    if rng.random() < 0.4:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=rng.randint(20, 75))
        picture = Image.open(buffer).convert("RGB")
    return picture


def pixels(pictures: list[Image.Image], size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    """float32 [N, 3, size, size], normalised."""
    array = np.stack([np.asarray(picture.resize((size, size), Image.Resampling.BICUBIC)) for picture in pictures])
    scaled = (array.astype(np.float32) / 255 - np.array(mean, np.float32)) / np.array(std, np.float32)
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
