"""Tiny clips whose frames carry their number, so that a test can tell which frame it got."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition

BLOCK = 16  # side of a block, which shows one bit of the frame's number: large enough to survive any codec
COLUMNS, ROWS = 4, 3


def numbered(number: int) -> np.ndarray:
    """A picture of ``[48, 64, 3]`` that shows a number below 4096 in binary, row by row."""
    bits = np.array([number >> bit & 1 for bit in range(COLUMNS * ROWS)], dtype=np.uint8).reshape(ROWS, COLUMNS)
    return np.repeat(np.kron(bits, np.full((BLOCK, BLOCK), 200, np.uint8))[..., None], 3, axis=2) + 20


def numbers_of(rgb: np.ndarray) -> list[int]:
    """Read the numbers of frames ``[T, 48, 64, 3]``."""
    blocks = rgb.reshape(len(rgb), ROWS, BLOCK, COLUMNS, BLOCK, 3)
    light = blocks.mean(axis=(2, 4, 5)).reshape(len(rgb), -1)
    return [sum(1 << bit for bit, value in enumerate(row) if value > 120) for row in light.tolist()]


def make_clip(
    path: Path,
    *,
    codec: str = "libx264",
    frames: int = 60,
    rate: int = 30,
    pts: Sequence[int] | None = None,
    picture: np.ndarray | None = None,
    matrix: Sequence[int] | None = None,
    pixel_aspect: Fraction | None = None,
    muxer: str | None = None,
    muxer_options: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    **options: Any,
) -> Path:
    """Encode numbered frames.

    Args:
        path: file to write; its suffix chooses the container.
        codec: encoder.
        frames: number of frames, when ``pts`` is not given.
        rate: ticks of ``pts`` in a second.
        pts: time of each frame, in ticks.
        picture: ``[H, W, 3]`` to show instead of numbers.
        matrix: nine numbers of a display matrix.
        pixel_aspect: width of a pixel over its height.
        muxer: container, when the suffix does not say it.
        muxer_options: options of the container.
        tags: of the container.
        options: options of the encoder; ``_`` stands for ``-``.
    """
    if codec == "libx265":
        options.setdefault("x265_params", "log-level=none")
    settings = {name.replace("_", "-"): str(value) for name, value in options.items()}
    if tags and path.suffix == ".mov":
        muxer_options = {"movflags": "use_metadata_tags", **(muxer_options or {})}
    with av.open(str(path), "w", format=muxer, options=muxer_options or {}) as container:
        container.metadata.update(tags or {})
        stream = container.add_stream(codec, rate=rate, options=settings)
        first = numbered(0) if picture is None else picture
        stream.height, stream.width, stream.pix_fmt = first.shape[0], first.shape[1], "yuv420p"
        stream.codec_context.time_base = Fraction(1, rate)
        if pixel_aspect is not None:
            stream.codec_context.sample_aspect_ratio = pixel_aspect
        if matrix is not None:
            stream.set_display_matrix(matrix)
        for number, time in enumerate(range(frames) if pts is None else pts):
            frame = av.VideoFrame.from_ndarray(numbered(number) if picture is None else picture, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def remux(source: Path, path: Path, change: Any, muxer_options: dict[str, str] | None = None) -> Path:
    """Copy the packets of a clip into another container, each through ``change(number, packet) -> packet or None``."""
    with av.open(str(source)) as given, av.open(str(path), "w", options=muxer_options or {}) as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for number, packet in enumerate(given.demux(video=0)):
            changed = change(number, packet) if packet.size else None
            if changed is not None:
                changed.stream = stream
                made.mux(changed)
    return path


def add_cover(source: Path, path: Path) -> Path:
    """Copy a clip into another container, with a cover image as the first video stream."""
    with av.open(str(source)) as clip, av.open(str(path), "w") as container:
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt, cover.disposition = 32, 32, "yuvj420p", Disposition.attached_pic
        stream = container.add_stream_from_template(clip.streams.video[0])
        image = av.VideoFrame(32, 32, "yuvj420p")
        image.pts, image.time_base = 0, Fraction(1)
        container.mux([*cover.encode(image), *cover.encode(None)])
        for packet in clip.demux(video=0):
            if packet.size:
                packet.stream = stream
                container.mux(packet)
    if path.suffix == ".mp4":  # FFmpeg writes the cover behind the tracks, others before them
        content = path.read_bytes()
        start = content.index(b"moov") + 4
        track, cover_box = content.index(b"trak", start) - 4, content.index(b"udta", start) - 4
        path.write_bytes(content[:track] + content[cover_box:] + content[track:cover_box])
    return path


def decoded(path: Path) -> list[tuple[int | None, np.ndarray]]:
    """Every frame by the plainest use of PyAV: ``(pts, [H, W, 3])``."""
    with av.open(str(path)) as container:
        return [(frame.pts, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]


def make_hdr_clip(path: Path, picture: np.ndarray, transfer: int, *, frames: int = 3, tagged: bool = True) -> Path:
    """Encode a picture ``[H, W, 3]`` (sRGB, even sides) as a phone would, with white paper at 203 cd/m².

    Args:
        path: file to write.
        picture: as it should look.
        transfer: 16 for PQ, 18 for HLG.
        frames: how often it is shown.
        tagged: False leaves out what says that it is HDR.
    """
    code = picture / 255
    linear = np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
    to_bt2020 = [[0.627404, 0.329283, 0.043313], [0.069097, 0.919540, 0.011362], [0.016391, 0.088013, 0.895595]]
    light = 203 * linear @ np.transpose(to_bt2020)
    luma = np.array([0.2627, 0.6780, 0.0593])
    if transfer == 16:
        power = (light / 10_000) ** (2610 / 16384)
        signal = ((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** (2523 / 32)
    else:
        brightness = np.maximum(light @ luma / 1000, 1e-9)[..., None]
        scene = light / 1000 * brightness ** (1 / 1.2 - 1)
        logarithm = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
        signal = np.where(scene <= 1 / 12, np.sqrt(3 * scene), logarithm)
    y = signal @ luma
    chroma = [(signal[..., 2] - y) / 1.8814, (signal[..., 0] - y) / 1.4746]
    halved = [plane.reshape(y.shape[0] // 2, 2, y.shape[1] // 2, 2).mean((1, 3)) for plane in chroma]
    planes = [64 + 876 * y, *(512 + 896 * plane for plane in halved)]
    packed = np.concatenate([plane.round().astype(np.uint16).ravel() for plane in planes])
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx265", rate=10, options={"x265-params": "log-level=none", "crf": "8"})
        stream.height, stream.width, stream.pix_fmt = *y.shape, "yuv420p10le"
        if tagged:
            context = stream.codec_context
            context.color_primaries, context.color_trc, context.colorspace, context.color_range = 9, transfer, 9, 1
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(packed.reshape(-1, y.shape[1]), format="yuv420p10le")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path
