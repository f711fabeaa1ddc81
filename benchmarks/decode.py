"""Reading a few frames of a video against decoding all of it.

    python benchmarks/decode.py --quick     # 360p, 30 s: seconds
    python benchmarks/decode.py             # 360p and 1080p, 30 s and 5 min: minutes

Makes its own clips in a temporary folder. Both ways convert the same frames to RGB with a short side of 224, run
alternately, and the best of several runs counts: other work on the machine only ever adds time.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from centerclip.parallel import decoder_threads
from centerclip.video import bin_centres, read_frames

SIZES = {"360p": (640, 360), "1080p": (1920, 1080)}
RATE = 30
SHORT_SIDE = 224
GRAINS = 7  # patterns of film grain, shown in turn


def make_clip(path: Path, size: tuple[int, int], seconds: int, gop: int) -> None:
    """Encode a panning camera over a textured scene, with grain, at the bit rate of web video (360p: 1 Mbit/s).

    Keyframes are exactly ``gop`` frames apart. A long clip repeats the packets of its first 50 s, which saves minutes
    of encoding and costs a decoder the same.
    """
    width, height = size
    random = np.random.default_rng(0)
    coarse = random.integers(20, 200, (height // 8, width // 4), dtype=np.uint8)
    scene = np.kron(coarse, np.ones((8, 8), dtype=np.uint8))  # [height, 2 * width]
    grain = random.integers(0, 12, (GRAINS, height, width), dtype=np.uint8)
    colour = np.full((height // 2, width), 128, dtype=np.uint8)
    bits = round(1e6 * width * height / (640 * 360))
    with av.open(str(path), "w") as container:
        options = {"preset": "ultrafast", "g": str(gop), "keyint_min": str(gop), "sc_threshold": "0"}
        stream = container.add_stream("libx264", rate=RATE, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", bits
        packets: list[av.Packet] = []
        encoded = min(seconds, 50) * RATE
        for number in range(encoded):
            left = number * 3 % width
            light = scene[:, left : left + width] + grain[number % GRAINS]
            frame = av.VideoFrame.from_ndarray(np.concatenate([light, colour]), format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            packets.extend(stream.encode(frame))
        packets.extend(stream.encode(None))
        for number in range(seconds * RATE):
            packet = av.Packet(bytes(packets[number % encoded]))
            packet.stream, packet.time_base = stream, Fraction(1, RATE)
            packet.pts = packet.dts = number  # this preset does not reorder frames
            packet.is_keyframe = packets[number % encoded].is_keyframe
            container.mux(packet)


def decode_everything(path: Path, count: int, frames: int) -> NDArray[np.uint8]:
    """The plain way: decode every frame, convert those at the bin centres. ``[count, H, W, 3]``."""
    places = {number: place for place, number in enumerate(bin_centres(frames, count))}
    reformatter = VideoReformatter()  # kept, like the reader's: making a new one for each frame is slow
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = decoder_threads()
        scale = SHORT_SIDE / min(stream.codec_context.width, stream.codec_context.height)
        width, height = (round(side * scale) for side in (stream.codec_context.width, stream.codec_context.height))
        rgb = np.empty((count, height, width, 3), dtype=np.uint8)
        for number, frame in enumerate(container.decode(stream)):
            if number in places:
                small = reformatter.reformat(frame, width, height, "rgb24", interpolation="BICUBIC", threads=1)
                rgb[places[number]] = small.to_ndarray()
    return rgb


def seconds_of(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of reading a few frames against decoding everything.")
    parser.add_argument("--quick", action="store_true", help="only 360p, 30 s")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way; the best one counts")
    arguments = parser.parse_args()
    names, lengths = (["360p"], [30]) if arguments.quick else (list(SIZES), [30, 300])

    table = Table(title="Frames of a video: centerclip.video against decoding everything", title_justify="left")
    for column in ("clip", "length", "keyframe every", "frames", "everything", "centerclip", "times faster"):
        table.add_column(column, justify="left" if column == "clip" else "right")
    slowest = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for name, length, gop in itertools.product(names, lengths, (30, 250)):
            clip = Path(folder) / f"{name}-{length}-{gop}.mp4"
            make_clip(clip, SIZES[name], length, gop)
            for count in (12, 60):
                everything = partial(decode_everything, clip, count, length * RATE)
                chosen = partial(read_frames, clip, count, short_side=SHORT_SIDE)
                if not np.array_equal(chosen().rgb, everything()):
                    raise SystemExit(f"{clip.name}, {count} frames: the two ways differ")
                pairs = [(seconds_of(everything), seconds_of(chosen)) for _ in range(arguments.repeats)]
                full, read = (min(times) for times in zip(*pairs, strict=True))
                slowest = min(slowest, full / read)
                table.add_row(
                    name, f"{length} s", str(gop), str(count), f"{full:.3f} s", f"{read:.3f} s", f"{full / read:.2f}"
                )
            clip.unlink()
    console = Console()
    console.print(table)
    console.print(f"The same frames, to the byte, both ways. Slowest case: {slowest:.2f} times as fast.")


if __name__ == "__main__":
    main()
