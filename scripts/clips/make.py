"""Make the clips of real pictures again: python scripts/clips/make.py PICTURES

PICTURES is a folder with the photographs and films that ``clips.toml`` names and their ``credits.csv`` (file, licence,
author, package, path_in_package). The clips, and ``clips.csv`` with what each shot shows and whom it is by, go into
the package.
"""

import csv
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from centerclip.bundled import FILM
from centerclip.video import read_times
from centerclip.video.encode import write_video

QUALITY = {"crf": "32", "preset": "slower"}
ZOOM = 0.72  # a zoom ends, or begins, with this share of the widest view
PAN = 0.84  # a pan shows this share of the widest view, so that there is a way to go
COLUMNS = ("clip", "start", "end", "query", "picture", "licence", "author", "source")


def photograph(path: Path, shot: dict[str, Any], size: tuple[int, int], frames: int) -> Iterator[NDArray[np.uint8]]:
    """A slow move of the camera over a photograph, frame by frame."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    widest = min(image.width / size[0], image.height / size[1])  # source pixels for each of the clip's
    move = shot["move"]
    if move in ("in", "out"):  # at the focus, as far as the borders allow
        boxes = [_view(image, size, share * widest, *shot["focus"], centred=True) for share in (1.0, ZOOM)]
    else:
        middle = {"left": (0, 0.5), "right": (1, 0.5), "up": (0.5, 0), "down": (0.5, 1)}[move]
        boxes = [_view(image, size, PAN * widest, *place) for place in ((1 - middle[0], 1 - middle[1]), middle)]
    first, last = boxes[::-1] if move == "out" else boxes
    for number in range(frames):
        way = number / max(1, frames - 1)
        way = way * way * (3 - 2 * way)  # starts and stops gently
        box = tuple(start + way * (end - start) for start, end in zip(first, last, strict=True))
        yield np.asarray(image.resize(size, Image.Resampling.BICUBIC, box=box))


def _view(
    image: Image.Image, size: tuple[int, int], scale: float, x: float, y: float, *, centred: bool = False
) -> tuple[float, float, float, float]:
    """A part of a picture, left, top, right, bottom: around a point, or from one end of it (0) to the other (1)."""
    width, height = scale * size[0], scale * size[1]
    if centred:
        left = min(max(x * image.width - width / 2, 0), image.width - width)
        top = min(max(y * image.height - height / 2, 0), image.height - height)
    else:
        left, top = x * (image.width - width), y * (image.height - height)
    return left, top, left + width, top + height


def film(path: Path, shot: dict[str, Any], size: tuple[int, int], frames: int, fps: int) -> Iterator[NDArray[np.uint8]]:
    """A part of a film on black."""
    times = [shot["from"] + number / fps for number in range(frames)]
    for pixels in np.asarray(read_times(path, times).rgb):
        image = Image.fromarray(pixels)
        scale = min(size[0] / image.width, size[1] / image.height)
        shown = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
        canvas = Image.new("RGB", size)
        canvas.paste(shown, ((size[0] - shown.width) // 2, (size[1] - shown.height) // 2))
        yield np.asarray(canvas)


def main() -> None:
    """Make all clips."""
    pictures = Path(sys.argv[1])
    with (Path(__file__).parent / "clips.toml").open("rb") as file:
        plan = tomllib.load(file)
    with (pictures / "credits.csv").open(encoding="utf-8", newline="") as file:
        credits = {row["file"]: row for row in csv.DictReader(file)}
    size, fps = (plan["size"][0], plan["size"][1]), plan["fps"]
    FILM.mkdir(parents=True, exist_ok=True)
    rows, total = [], 0
    for number, clip in enumerate(plan["clip"], start=1):
        target, parts, start = FILM / f"reel-{number:02}.mp4", [], 0.0
        for shot in clip["shots"]:
            path, seconds = pictures / shot["file"], shot.get("seconds", plan["seconds"])
            frames = round(seconds * fps)
            moving = path.suffix == ".mp4"
            parts.append(film(path, shot, size, frames, fps) if moving else photograph(path, shot, size, frames))
            credit = credits[shot["file"]]
            source = f"{credit['package']} {credit['version']}"
            rows.append(
                (
                    target.name,
                    start,
                    start + seconds,
                    shot["query"],
                    path.stem,
                    credit["licence"],
                    credit["author"],
                    source,
                )
            )
            start += seconds
        write_video(target, (frame for part in parts for frame in part), fps, QUALITY)
        total += target.stat().st_size
        print(f"{target.name}  {start:4.0f} s  {target.stat().st_size / 1e3:6.0f} kB")
    with (FILM / "clips.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    print(f"{len(plan['clip'])} clips, {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
