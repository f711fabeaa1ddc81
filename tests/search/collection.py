"""A tiny model in a folder, and clips that it can tell apart."""

import sqlite3
from pathlib import Path

import numpy as np
from transformers import CLIPModel

from centerclip import CenterCLIP, VideoIndex
from tests.model import tiny
from tests.video.clips import make_clip

CLUSTERING = "B2-4,8"


def save_model(folder: Path, seed: int = 0) -> Path:
    """A whole model folder, a second's work."""
    model = tiny.center_clip(CLUSTERING)
    if seed:
        model.backbone.load_state_dict(tiny.clip(seed=seed).state_dict())
    model.save_pretrained(folder)
    assert isinstance(model.backbone, CLIPModel)
    return folder


def open_tiny() -> CenterCLIP:
    return tiny.center_clip(CLUSTERING)


def picture(number: int) -> np.ndarray:
    """``[48, 64, 3]`` noise in blocks, another one for each number."""
    blocks = np.random.default_rng(number).integers(0, 255, (6, 8, 3))
    return np.kron(blocks, np.ones((8, 8, 1))).astype(np.uint8)


def clip(path: Path, number: int, seconds: float = 2.0, rate: int = 5, tags: dict[str, str] | None = None) -> Path:
    """A clip that shows one picture all the time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return make_clip(path, frames=round(seconds * rate), rate=rate, picture=picture(number), tags=tags)


def scenes(path: Path, numbers: list[int], seconds: float = 12.0, rate: int = 2) -> Path:
    """A clip of several pictures, each for some seconds."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"g": "8"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in numbers:
            for _ in range(round(seconds * rate)):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number), format="rgb24")))
        container.mux(stream.encode(None))
    return path


def titles(index: VideoIndex) -> list[str]:
    return sorted(entry.title for entry in index.videos())


def cannot_open() -> sqlite3.OperationalError:
    """What SQLite says when it may not make the files that a WAL needs."""
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return error
