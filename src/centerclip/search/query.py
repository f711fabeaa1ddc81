"""Queries to vectors: the model of an index, opened when needed and checked against what the index was made with."""

import re
import threading
import unicodedata
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import OtherSettings, SearchError
from .folder import DEFAULT_FRAMES, IndexSettings, default_clustering
from .store import Floats, unit

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

    from ..model.pipeline import Pixels, VideoEncoder

    AnyImage = str | PathLike[str] | PilImage | np.ndarray  # a file, or uint8 [H, W, 3]


UNNAMED = "a model that was never saved"
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
        text: a sentence that is the whole query, to be found in what is said and written too; empty for others.
    """

    vector: Floats
    has_text: bool
    video_id: str = ""
    text: str = ""


class Encoder:
    """Turns queries into vectors ``[D]`` of norm 1. Safe to use from several threads.

    Args:
        settings: of the index.
        model: an open model; by default the one that the index was made with is opened at the first query.
        device: where that one is put: ``"cpu"``, ``"cuda"`` or ``"mps"``; a GPU by default, if there is one.
    """

    def __init__(self, settings: IndexSettings, model: "VideoEncoder | None" = None, device: str | None = None) -> None:
        self.settings, self._model, self._device = settings, model, device
        self._lock = threading.Lock()
        if model is not None:
            _check_precision(settings, model)

    def text(self, sentence: str) -> Floats:
        """A sentence."""
        return self.texts([sentence])[0]

    def texts(self, sentences: list[str]) -> Floats:
        """Sentences, ``[B, D]``."""
        model = self.model()
        with self._turn(model):
            return model.encode_sentences(sentences)

    def image(self, source: "AnyImage") -> Floats:
        """An image: a video of one frame."""
        from PIL import Image, ImageOps

        try:
            if isinstance(source, np.ndarray):
                image = Image.fromarray(source)
            else:
                image = source if isinstance(source, Image.Image) else Image.open(Path(source).expanduser())
            upright = ImageOps.exif_transpose(image).convert("RGB")
            upright.thumbnail((1024, 1024))  # the model sees less
        except (OSError, ValueError, TypeError, Image.DecompressionBombError) as error:
            if isinstance(source, np.ndarray | Image.Image):
                raise SearchError(f"not an image: {error}. Give a PIL image, or uint8 [H, W, 3]") from error
            reason = f"cannot open the image {str(source)!r} ({error}). Give a .jpg, .png or .webp file"
            raise SearchError(reason) from error
        return self._mean(np.array(upright)[None])

    def video(self, path: str | Path) -> Floats:
        """A clip, as one vector."""
        from ..video import read_frames

        model = self.model()
        # Decoded before the model is locked: sentences need not wait for it.
        frames = read_frames(Path(path).expanduser(), count=model.frames, short_side=model.preprocess.read_size)
        return self._mean(frames.rgb[frames.mask])

    def _mean(self, rgb: "Pixels") -> Floats:
        from ..model.pipeline import to_window

        model = self.model()
        squares, mask = to_window(model.preprocess, rgb, model.frames)
        with self._turn(model):
            segments, counts = model.encode_windows(squares[None], mask[None])
        return unit(segments[counts].mean(axis=0))

    def _turn(self, model: "VideoEncoder") -> AbstractContextManager[object]:
        """One thread at a time for a torch model; ONNX Runtime takes several."""
        return self._lock if model.engine == "torch" else nullcontext()

    def model(self) -> "VideoEncoder":
        """The open model."""
        with self._lock:
            if self._model is None:
                model = open_model(self.settings.model, self.settings.clustering, self.settings.frames, self._device)
                if model.fingerprint() != self.settings.fingerprint:
                    raise OtherSettings(
                        f"the model {self.settings.model} has changed since the index was made. Restore the old one, "
                        "or make the index again with --reindex"
                    )
                _check_precision(self.settings, model)
                self._model = model
            return self._model


def open_model(
    name: str | Path, clustering: str | None, frames: int | None, device: str | None = None
) -> "VideoEncoder":
    """Open a model by name, folder or file. What is not given comes from its folder, else from the defaults."""
    from ..bundled import resolve_model
    from ..model.backbone import read_settings
    from ..model.engine import open_encoder
    from ..model.hub import SETTINGS_FILE, find_model

    if name == UNNAMED:
        raise OtherSettings(
            f"the index was made with {UNNAMED}; pass that model again: VideoIndex(folder, model=model)"
        )
    is_file = Path(resolve_model(name)).expanduser().is_file()
    saved = {} if is_file else read_settings(find_model(name) / SETTINGS_FILE)
    frames = frames or saved.get("frames", DEFAULT_FRAMES)
    model = open_encoder(name, clustering=clustering, frames=frames, device=device)
    if clustering is None and "clustering" not in saved:
        model.set_clustering(default_clustering(blocks=model.blocks, frames=frames))
    return model


def settings_of(model: "VideoEncoder", name: str | Path | None, every: float) -> IndexSettings:
    """The settings of an index made with a model; without a ``name``, it is called what it was opened from."""
    return IndexSettings(
        model=str(name or model.folder or UNNAMED),
        fingerprint=model.fingerprint(),
        clustering=str(model.clustering),
        frames=model.frames,
        segments=model.segments,
        every=float(every),
        width=model.width,
        precision=model.precision,
    )


def _check_precision(settings: IndexSettings, model: "VideoEncoder") -> None:
    """Refuse a model whose precision was found, on this machine, not to be close to that of the index."""
    from ..model.precision import compatible

    measured = getattr(model, "report", {})
    if settings.precision in measured and not compatible(settings.precision, model.precision, measured):
        raise OtherSettings(
            f"the index was made in {settings.precision}, which is not close to {model.precision} on this machine; "
            "make the index again with --reindex"
        )
