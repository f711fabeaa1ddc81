"""The model of an index: opened when it is needed, checked against what the index was made with."""

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OtherSettings, SearchError
from ..model.text_encoder import FILES, TextEncoder, open_text_encoder
from .folder import DEFAULT_CLUSTERING, DEFAULT_FRAMES, DEFAULT_MODEL, IndexSettings
from .store import Floats

if TYPE_CHECKING:
    from ..model import CenterCLIP


SAMPLES = 64  # values of each tensor that the fingerprint looks at
SAME = 1e-3  # largest difference of two vectors' values that is rounding
TRIAL = ("a dog", "Two men, one of them old, play chess!", "Ünïcode 日本 " + "and a very long sentence " * 30)


@dataclass(frozen=True)
class Query:
    """What is searched for, encoded: to search with it several times.

    Attributes:
        vector: ``[D]`` of norm 1.
        has_text: whether there is a sentence in it. Hits of images and clips alone are judged by other standards.
    """

    vector: Floats
    has_text: bool


class Encoder:
    """Turns queries into vectors ``[D]`` of norm 1. Safe to use from several threads.

    Args:
        settings: of the index.
        model: an open model; by default the one that the index was made with is opened at the first query.
    """

    def __init__(self, settings: IndexSettings, model: "CenterCLIP | None" = None) -> None:
        self.settings = settings
        self._model = model
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

    def can_do_better(self) -> bool:
        """Whether the model is open and there is no short cut for sentences yet."""
        return self._model is not None and _open_text_encoder(self.settings) is None

    def image(self, path: str | Path) -> Floats:
        """A picture file: a video of one frame."""
        import torch
        from PIL import Image, ImageOps, UnidentifiedImageError

        try:
            with Image.open(Path(path).expanduser()) as picture:
                upright = ImageOps.exif_transpose(picture).convert("RGB")
                upright.thumbnail((1024, 1024))  # the model sees less
                rgb = torch.from_numpy(np.array(upright))[None]
        except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
            raise SearchError(
                f"{str(path)!r} cannot be opened as a picture ({error}). Give a .jpg, .png or .webp"
            ) from error
        return self._mean(rgb)

    def video(self, path: str | Path) -> Floats:
        """A clip, as one vector."""
        return self._mean(str(Path(path).expanduser()))

    def _mean(self, video: Any) -> Floats:
        model = self.model()
        with self._lock:
            segments = model.encode_video(video).segments.float().cpu().numpy()
        mean = segments.mean(axis=0)
        return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), dtype=np.float32)

    def model(self) -> "CenterCLIP":
        """The open model."""
        with self._lock:
            if self._model is None:
                model = open_model(self.settings.model, self.settings.clustering, self.settings.frames)
                if fingerprint(model) != self.settings.fingerprint:
                    raise OtherSettings(
                        f"the model {self.settings.model} is no longer the one that the index was made with. Put the "
                        "old one back, or make the index again with --reindex"
                    )
                self._model = model
            return self._model


def open_model(name: str | Path | None, clustering: str | None, frames: int | None) -> "CenterCLIP":
    """Open a model by name, folder or file. What is not given comes from its folder, else from the defaults."""
    from ..bundled import known_as
    from ..model import CenterCLIP
    from ..model.backbone import SETTINGS

    named = DEFAULT_MODEL if name is None else name
    own = (Path(known_as(named)).expanduser() / SETTINGS).is_file()
    if clustering is None and not own:
        clustering = DEFAULT_CLUSTERING
    if frames is None and not own:
        frames = DEFAULT_FRAMES
    return CenterCLIP.from_pretrained(named, clustering=clustering, frames=frames)


def fingerprint(model: "CenterCLIP") -> str:
    """A hash of a model's weights, the same wherever it was opened from: a few values of every tensor.

    Training changes nearly every value, so a few of each tell two models apart.
    """
    digest = hashlib.blake2b(repr(model.preprocess).encode(), digest_size=12)
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        values = flat[:: max(1, len(flat) // SAMPLES)][:SAMPLES].double().cpu().numpy()
        digest.update(f"{name}{list(tensor.shape)}".encode() + values.tobytes())
    return digest.hexdigest()


def text_encoder_files(model: "CenterCLIP") -> dict[str, list[int]]:
    """The files that sentences can be encoded from without torch, with size and time; none where that is not so.

    It is so when both ways give the same vectors for a few sentences.
    """
    folder = Path(getattr(model.backbone.config, "name_or_path", "") or "?")
    encoder = open_text_encoder(folder) if folder.is_dir() and model.temporal is None else None
    if encoder is None:
        return {}
    theirs = model.encode_text(list(TRIAL)).float().cpu().numpy()
    ours = np.stack([encoder(sentence) for sentence in TRIAL])
    return _stamps(folder) if float(np.abs(ours - theirs).max()) < SAME else {}


def _open_text_encoder(settings: IndexSettings) -> TextEncoder | None:
    """The short cut for sentences, if the model's files are as they were when it was compared."""
    if not settings.files:
        return None
    folder = Path(next(iter(settings.files))).parent
    return open_text_encoder(folder) if _stamps(folder) == settings.files else None


def _stamps(folder: Path) -> dict[str, list[int]]:
    """Size and time of the files that a sentence's vector depends on."""
    found = [(str(folder / name), (folder / name).stat()) for name in FILES if (folder / name).is_file()]
    return {path: [status.st_size, status.st_mtime_ns] for path, status in found}


def settings_of(model: "CenterCLIP", name: str | Path | None, every: float) -> IndexSettings:
    """The settings of an index that is made with a model; without a name, the one it was opened by."""
    return IndexSettings(
        model=str(name or getattr(model.backbone.config, "name_or_path", "") or "a model without a name"),
        fingerprint=fingerprint(model),
        clustering=str(model.clustering),
        frames=model.frames,
        segments=model.segments,
        every=float(every),
        width=model.width,
    )
