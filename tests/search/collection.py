"""A tiny model in a folder, and clips that it can tell apart."""

import sqlite3
from pathlib import Path

import av
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


def content(index: VideoIndex) -> dict[str, tuple[str, bytes]]:
    """What is in an index, in a form that can be compared: paths, videos, vectors."""
    view = index._open().store.view()
    assert view.count() == sum(view.size(video) for video in view.videos)
    return {
        path: (file.video, np.concatenate([s.vectors.ravel(), s.starts, s.ends]).astype(np.float16).tobytes())
        for path, file in view.files.items()
        if file.video and (s := view.segments(file.video)) is not None
    }


def cannot_open() -> sqlite3.OperationalError:
    """What SQLite says when it may not make the files that a WAL needs."""
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return error


def moving(path: Path, seed: int, seconds: int = 40) -> Path:
    """A picture that moves all the time: no two frames are alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5, options={"g": "50", "sc_threshold": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for step in range(5 * seconds):
            frame = np.roll(picture(seed), step, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    return path
