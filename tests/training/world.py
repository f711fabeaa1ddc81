"""A tiny world to train on: a coloured shape crosses a grey picture, and a sentence says so."""

import csv
from fractions import Fraction
from itertools import product
from pathlib import Path

import av
import numpy as np

COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 80, 230), "yellow": (235, 220, 50),
           "purple": (160, 50, 190), "white": (245, 245, 245), "black": (10, 10, 10),
           "orange": (240, 140, 30)}  # fmt: skip
SHAPES = ("square", "circle", "bar", "frame")
SIDE = 32

RECIPE = """
[model]
start = "new"
clustering = "B2-2,8"
frames = 4
max_tokens = 16
[model.new]
image_size = 32
patch_size = 8
width = 48
blocks = 3
heads = 3
text_width = 48
text_blocks = 2
text_heads = 3
projection = 32
vocabulary = 560
[train]
lr = 2e-3
epochs = 3
batch_size = 8
weight_decay = 0.05
log_every = 1
"""


def make_world(folder: Path, *, clips: int | None = None, frames: int = 8) -> Path:
    """Write clips and ``captions.csv`` with the splits train, val and test; every colour and shape is in each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    things = list(product(COLOURS, SHAPES))[:clips]
    for number, (colour, shape) in enumerate(things):
        for way, split in enumerate(("train", "train", "val", "test")):
            name = f"{colour}-{shape}-{way}"
            write_clip(folder / f"{name}.mp4", colour, shape, frames=frames, seed=4 * number + way)
            rows += [(name, f"a {colour} {shape} moves", split), (name, f"the {shape} is {colour}", split)]
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("video", "caption", "split"), *rows])
    return folder


def write_clip(path: Path, colour: str, shape: str, *, frames: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    grey, top = generator.integers(90, 150), int(generator.integers(2, 14))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=8, options={"crf": "18", "preset": "ultrafast"})
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        for time in range(frames):
            picture = np.full((SIDE, SIDE, 3), grey, np.uint8)
            part = picture[top : top + 16, 2 + time : 18 + time]
            part[mask_of(shape)[:, : part.shape[1]]] = COLOURS[colour]
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 8)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def mask_of(shape: str) -> np.ndarray:
    """bool ``[16, 16]``."""
    rows, columns = np.mgrid[:16, :16] - 7.5
    return {
        "square": np.ones((16, 16), bool),
        "circle": rows**2 + columns**2 < 60,
        "bar": abs(rows) < 3,
        "frame": np.maximum(abs(rows), abs(columns)) > 4.5,
    }[shape]
