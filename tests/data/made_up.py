"""Tiny benchmarks in the real formats, with made-up words, and tiny clips to go with them."""

import csv
import gzip
import io
import json
import pickle
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def packed(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content))
    return path


def table(rows: Sequence[Sequence[str]], end: str = "\n") -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator=end).writerows(rows)
    return buffer.getvalue()


def msrvtt(folder: Path, *, gzipped: bool = True) -> Path:
    """Six videos: three of the 7K list (video2 is marked validate), four of the 9K list, two test pairs."""
    marks = {0: "train", 1: "train", 2: "validate", 3: "test", 4: "test", 5: "test"}
    data = {
        "info": {},
        "videos": [{"video_id": f"video{n}", "split": mark, "id": n} for n, mark in marks.items()],
        "sentences": [{"video_id": f"video{n}", "caption": f"thing {n} way {way}"} for way in (0, 1) for n in marks],
    }
    content = json.dumps(data)
    if gzipped:
        packed(folder / "MSRVTT_data.json.gz", content.encode())
    else:
        text(folder / "MSRVTT_data.json", content)
    text(folder / "MSRVTT_train.7k.csv", "video_id\nvideo0\nvideo2\nvideo1\n")
    text(folder / "MSRVTT_train.9k.csv", "video_id\nvideo0\nvideo1\nvideo2\nvideo3\n")
    test = [("key", "vid_key", "video_id", "sentence"), ("ret0", "msr5", "video5", "a cat, asleep")]
    text(folder / "MSRVTT_JSFUSION_test.csv", table([*test, ("ret1", "msr4", "video4", "a  dog \n runs")]))
    return folder


MSVD_WORDS = {"-a_1_2": [["one", "cow"], ["a", "cow"]], "b_3_4": [["two", "cows"]], "c_5_6": [["a", "tree"]]}


def msvd(folder: Path, *, layout: str) -> Path:
    if layout == "json":
        sentences = {video: [" ".join(words) for words in spoken] for video, spoken in MSVD_WORDS.items()}
        packed(folder / "captions_msvd.json.gz", json.dumps(sentences).encode())
    else:
        packed(folder / "raw-captions.pkl.gz", pickle.dumps(MSVD_WORDS, protocol=2))
    text(folder / "train_list.txt", "-a_1_2")
    text(folder / "val_list.txt", "b_3_4\n")
    text(folder / "test_list.txt", "c_5_6\r\n")
    return folder


LSMDC_CLIPS = ("0001_Film_00.00.01.500-00.00.02.886", "0002_Other_Film_01.00.01.500-01.00.02.171")


def lsmdc(folder: Path) -> Path:
    lines = (f'{clip}\t00.01\t00.02\t00.01\t00.02\tSOMEONE says "no, {n}".' for n, clip in enumerate(LSMDC_CLIPS))
    text(folder / "LSMDC16_challenge_1000_publictect.csv", "\n".join(lines))
    return folder


def activitynet(folder: Path, train: Iterable[str] = ("v_a",), test: Iterable[str] = ("v_b",)) -> Path:
    for name, videos in (("train", train), ("val_1", test)):
        content = {
            video: {"duration": 9.5, "timestamps": [[0, 3], [2, 9]], "sentences": [f"{video} starts.", "  It ends."]}
            for video in videos
        }
        packed(folder / f"{name}.json.gz", json.dumps(content).encode())
    return folder


def clip(
    path: Path,
    *,
    seconds: float = 1.0,
    fps: int = 10,
    size: tuple[int, int] = (64, 48),
    codec: str = "mpeg4",
    colour: tuple[int, int, int] | None = None,
    aspect: Fraction | None = None,
) -> Path:
    """A clip that gets brighter from frame to frame, or of one colour. ``size`` is width, height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    frames = round(seconds * fps)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.bit_rate = 2_000_000
        if aspect:
            stream.codec_context.sample_aspect_ratio = aspect
        for number in range(frames):
            grey = 20 + 200 * number // frames
            pixels = np.full((height, width, 3), colour or grey, dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path
