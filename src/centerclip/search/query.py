"""Queries to vectors: the model of an index, opened when it is needed and checked against what the index was made with.

A sentence needs no torch where :mod:`centerclip.model.text_encoder` gives the same vectors as the model. The two are
compared when the index is made, and the model's files are remembered with their size and time.
"""

import re
import threading
import unicodedata
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import OtherSettings, SearchError
from ..model.text_encoder import FILES, TextEncoder, open_text_encoder
from .folder import DEFAULT_FRAMES, IndexSettings, default_clustering
from .store import Floats

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

    from ..model import CenterCLIP

    AnyImage = str | PathLike[str] | PilImage | np.ndarray  # a file, or uint8 [H, W, 3]


UNNAMED = "a model that was never saved"
# Largest difference between a value of our text encoder's vector and the model's, both of norm 1. Rounding gives 2e-7
# with trained weights and 8e-6 with small random ones.
MAX_DIFFERENCE = 2e-5
COMPARED_SENTENCES = (
    "a dog",
    "Two men, one of them old, play chess!",
    "Ünïcode 日本 " + "and a very long sentence " * 30,
)


# Words that English does not have, of languages that people may type in; and those that an English sentence has.
FOREIGN = (
    "der das ein eine einen im am auf und mit ist dem den von",
    "le la les un une des du dans et avec sur est",
    "el los las en con una del por",
    "il lo gli di che nel sul um uma em na com het een op van met",
)
FOREIGN_WORDS = {word for line in FOREIGN for word in line.split()}
ENGLISH_WORDS = {"a", "an", "the", "of", "on", "at", "with", "and", "to", "is", "are", "into", "from"}


def is_english(sentence: str) -> bool:
    """Whether a sentence may be English, which most CLIPs understand alone; a word or two always may be."""
    letters = [letter for letter in sentence if letter.isalpha()]
    if 2 * sum("LATIN" not in unicodedata.name(letter, "") for letter in letters) > len(letters):
        return False
    words = set(re.findall(r"\w+", sentence.lower()))
    return len(FOREIGN_WORDS & words) < 2 or bool(ENGLISH_WORDS & words)


@dataclass(frozen=True)
class Query:
    """What is searched for, encoded: to search with it several times.

    Attributes:
        vector: ``[D]`` of norm 1.
        has_text: whether there is a sentence in it. Hits of images and clips alone are judged by other standards.
        video_id: of the clip in it, where that is a video of the index: it is not among the hits.
    """

    vector: Floats
    has_text: bool
    video_id: str = ""


class Encoder:
    """Turns queries into vectors ``[D]`` of norm 1. Safe to use from several threads.

    Args:
        settings: of the index.
        model: an open model; by default the one that the index was made with is opened at the first query.
        device: where that one is put: ``"cpu"``, ``"cuda"`` or ``"mps"``; a CUDA GPU by default, if there is one.
    """

    def __init__(
        self, settings: IndexSettings, model: "CenterCLIP | None" = None, *, device: str | None = None
    ) -> None:
        self.settings = settings
        self._model, self._device = model, device
        self._lock, self._text_lock = threading.Lock(), threading.Lock()
        self._text_encoder: TextEncoder | None = None if model is not None else _open_text_encoder(settings)

    def text(self, sentence: str) -> Floats:
        """A sentence."""
        encoder = self._text_encoder
        if encoder is not None:
            with self._text_lock:  # not the model's: a sentence need not wait until that is open
                return encoder(sentence)
        return self.texts([sentence])[0]

    def texts(self, sentences: list[str]) -> Floats:
        """Sentences, ``[B, D]``."""
        model = self.model()
        with self._lock:
            return np.asarray(model.encode_text(sentences).float().cpu().numpy())

    def lacks_text_encoder(self) -> bool:
        """Whether the model is open and no text encoder has been compared with it."""
        return self._model is not None and _open_text_encoder(self.settings) is None

    def image(self, source: "AnyImage") -> Floats:
        """An image: a video of one frame."""
        from PIL import Image, ImageOps, UnidentifiedImageError

        try:
            if isinstance(source, np.ndarray):
                image = Image.fromarray(source)
            else:
                image = source if isinstance(source, Image.Image) else Image.open(Path(source).expanduser())
            upright = ImageOps.exif_transpose(image).convert("RGB")
            upright.thumbnail((1024, 1024))  # the model sees less
        except (OSError, UnidentifiedImageError, ValueError, TypeError, Image.DecompressionBombError) as error:
            if isinstance(source, np.ndarray | Image.Image):
                raise SearchError(f"not an image: {error}. Give a PIL image, or uint8 [H, W, 3]") from error
            raise SearchError(
                f"cannot open the image {str(source)!r} ({error}). Give a .jpg, .png or .webp file"
            ) from error
        return self._mean(np.array(upright)[None])

    def video(self, path: str | Path) -> Floats:
        """A clip, as one vector."""
        from ..video import read_frames

        model = self.model()
        # Decoded before the model is locked: sentences need not wait for it.
        frames = read_frames(Path(path).expanduser(), count=model.frames, short_side=model.preprocess.read_size)
        return self._mean(frames.rgb[frames.mask])

    def _mean(self, rgb: np.ndarray) -> Floats:
        model = self.model()
        with self._lock:
            segments = model.encode_video(rgb).segments.float().cpu().numpy()
        mean = segments.mean(axis=0)
        return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), dtype=np.float32)

    def model(self) -> "CenterCLIP":
        """The open model."""
        with self._lock:
            if self._model is None:
                model = open_model(self.settings.model, self.settings.clustering, self.settings.frames, self._device)
                if model.fingerprint() != self.settings.fingerprint:
                    raise OtherSettings(
                        f"the model {self.settings.model} has changed since the index was made. Restore the old one, "
                        "or make the index again with --reindex"
                    )
                self._model = model
            return self._model


def open_model(name: str | Path, clustering: str | None, frames: int | None, device: str | None = None) -> "CenterCLIP":
    """Open a model by name, folder or file. What is not given comes from its folder, else from the defaults."""
    from ..bundled import resolve_model
    from ..model import CenterCLIP
    from ..model.backbone import SETTINGS_FILE

    if name == UNNAMED:
        raise OtherSettings(
            f"the index was made with {UNNAMED}; pass that model again: VideoIndex(folder, model=model)"
        )
    if (Path(resolve_model(name)).expanduser() / SETTINGS_FILE).is_file():
        return CenterCLIP.from_pretrained(name, clustering=clustering, frames=frames, device=device)
    model = CenterCLIP.from_pretrained(
        name, clustering=clustering or "none", frames=frames or DEFAULT_FRAMES, device=device
    )
    if clustering is None:
        model.set_clustering(default_clustering(blocks=len(model.attachment.blocks), frames=model.frames))
    return model


def settings_of(model: "CenterCLIP", name: str | Path | None, every: float) -> IndexSettings:
    """The settings of an index made with a model; without a ``name``, it is called what it was opened from."""
    return IndexSettings(
        model=str(name or getattr(model.backbone.config, "name_or_path", "") or UNNAMED),
        fingerprint=model.fingerprint(),
        clustering=str(model.clustering),
        frames=model.frames,
        segments=model.segments,
        every=float(every),
        width=model.width,
    )


def text_encoder_files(model: "CenterCLIP") -> dict[str, list[int]]:
    """The files that sentences can be encoded from without torch, with size and time; none where vectors differ."""
    folder = Path(getattr(model.backbone.config, "name_or_path", "") or "?")
    encoder = open_text_encoder(folder) if folder.is_dir() and model.temporal is None else None
    if encoder is None:
        return {}
    expected = model.encode_text(list(COMPARED_SENTENCES)).float().cpu().numpy()
    vectors = np.stack([encoder(sentence) for sentence in COMPARED_SENTENCES])
    return _stamps(folder) if float(np.abs(vectors - expected).max()) <= MAX_DIFFERENCE else {}


def _open_text_encoder(settings: IndexSettings) -> TextEncoder | None:
    """The text encoder without torch, if the model's files are as they were when the two were compared."""
    if not settings.files:
        return None
    folder = Path(next(iter(settings.files))).parent
    return open_text_encoder(folder) if _stamps(folder) == settings.files else None


def _stamps(folder: Path) -> dict[str, list[int]]:
    """Size and time of the files that a sentence's vector depends on."""
    files = {str(folder / name): (folder / name).stat() for name in FILES if (folder / name).is_file()}
    return {path: [status.st_size, status.st_mtime_ns] for path, status in files.items()}
