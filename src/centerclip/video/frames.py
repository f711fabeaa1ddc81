"""A decoded frame as it is meant to be seen: upright, with square pixels, RGB, at the wanted size."""

import struct
from fractions import Fraction
from functools import cache
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageFilter

from .container import Source
from .errors import TooLarge, UnreadableVideo

MAX_PIXEL_ASPECT = 16  # a stranger pixel shape than 16:1 or 1:16 is a broken header
# The two transfer functions of HDR video, by their numbers in ITU-T H.273, and the brightest white of each in cd/m².
HDR_TRANSFERS = {16: ("PQ", 10_000.0), 18: ("HLG", 1000.0)}
HDR_WHITE = 203.0  # cd/m² of white paper in HDR video (ITU-R BT.2408); what is brighter shines
TONE_KNEE = 0.4  # of that white; below it nothing is changed but the unit
LUT_SIZE = 65  # grid points a channel, the most that Pillow takes; between them colours are interpolated
BT2020_TO_BT709 = np.array(
    [[1.660491, -0.587641, -0.072850], [-0.124550, 1.132900, -0.008349], [-0.018151, -0.100579, 1.118730]]
)


class Orientation:
    """One of the eight ways to turn and mirror a frame, from the display matrix that a camera writes.

    Attributes:
        transpose: rows become columns, before mirroring.
        mirror_rows: the frame is upside down.
        mirror_columns: left and right are swapped.
    """

    def __init__(self, matrix: bytes | None) -> None:
        # x' = a x + c y, y' = b x + d y, as 16.16 fixed point; the rest of the matrix moves and scales
        a, b, c, d = (1, 0, 0, 1) if matrix is None else struct.unpack("=2i4x2i", matrix[:20])
        self.transpose = abs(b) + abs(c) > abs(a) + abs(d)
        self.mirror_columns = (c if self.transpose else a) < 0
        self.mirror_rows = (b if self.transpose else d) < 0

    @property
    def degrees(self) -> int:
        """Clockwise turn that shows the frame upright: 0, 90, 180 or 270."""
        if self.transpose:
            return 270 if self.mirror_rows else 90
        return 180 if self.mirror_rows else 0

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after the turn, or before it: the two are each other's inverse."""
        return (height, width) if self.transpose else (width, height)

    def apply(self, pixels: np.ndarray) -> np.ndarray:
        """Turn ``[H, W, 3]``."""
        if self.transpose:
            pixels = pixels.transpose(1, 0, 2)
        return pixels[:: -1 if self.mirror_rows else 1, :: -1 if self.mirror_columns else 1]


def frame_orientation(frame: VideoFrame) -> Orientation:
    """How a decoded frame has to be turned."""
    # Side data and its frame refer to each other, which keeps the frame in memory until the garbage collector comes;
    # better that it keeps a tiny copy.
    tiny = frame.reformat(16, 16, "gray", threads=1)
    matrix: Any = tiny.side_data.get("DISPLAYMATRIX")
    return Orientation(None if matrix is None else bytes(matrix))


def pixel_aspect_of(stream: VideoStream) -> Fraction | None:
    """Width of a pixel over its height, from the container or else the codec; None when neither says."""
    return stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio or None


def shown_size(
    width: int, height: int, pixel_aspect: Fraction | None, short_side: int | None = None
) -> tuple[int, int]:
    """Width and height, before turning, of a frame with square pixels and the wanted short side."""
    if pixel_aspect and Fraction(1, MAX_PIXEL_ASPECT) <= pixel_aspect <= MAX_PIXEL_ASPECT:
        shown = width * pixel_aspect
    else:
        shown = Fraction(width)
    if short_side is None:
        return max(1, round(shown)), height
    scale = short_side / min(shown, Fraction(height))
    return max(1, round(shown * scale)), max(1, round(height * scale))


def even_size(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    """Width and height of a copy: never larger, and even, because H.264 with halved chroma has no other."""
    scale = 1.0 if short_side is None else min(1.0, short_side / min(width, height))
    return max(2, 2 * round(width * scale / 2)), max(2, 2 * round(height * scale / 2))


def hdr_of(frame: VideoFrame) -> str:
    """ "PQ" (HDR10, HDR10+, Dolby Vision) or "HLG" (most phones); empty for a frame that any screen can show."""
    return HDR_TRANSFERS.get(frame.color_trc, ("", 0))[0]


def tone_map(signal: ArrayLike, transfer: int) -> NDArray[np.float64]:
    """HDR colours as a screen without HDR shows them.

    Light up to 0.4 of paper white keeps its brightness. What is brighter is pressed together, so that paper is light
    and not white, and the brightest light of the format is white. All three channels get the same factor, so hues stay.

    Args:
        signal: R, G and B as coded, 0 to 1, with the primaries of BT.2020: ``[..., 3]``.
        transfer: a key of :data:`HDR_TRANSFERS`.

    Returns:
        sRGB, 0 to 1: ``[..., 3]``.
    """
    code = np.asarray(signal, np.float64)
    name, peak = HDR_TRANSFERS[transfer]
    if name == "PQ":  # SMPTE ST 2084
        root = code ** (32 / 2523)
        light = peak * (np.maximum(root - 0.8359375, 0) / (18.8515625 - 18.6875 * root)) ** (16384 / 2610)
    else:  # ARIB STD-B67, and the gamma of a screen of 1,000 cd/m² (ITU-R BT.2100)
        scene = np.where(code <= 0.5, code**2 / 3, (np.exp((code - 0.55991073) / 0.17883277) + 0.28466892) / 12)
        light = peak * scene * (scene @ [0.2627, 0.6780, 0.0593])[..., None] ** 0.2
    linear = np.maximum(light / HDR_WHITE @ BT2020_TO_BT709.T, 0)
    # The Möbius curve: a line up to the knee, on in the same direction from there, and 1 at the peak.
    knee, top, brightest = TONE_KNEE, peak / HDR_WHITE, linear.max(-1, keepdims=True)
    a = -(knee**2) * (top - 1) / (knee**2 - 2 * knee + top)
    b = (knee**2 - 2 * knee * top + top) / (top - 1)
    bent = (b + knee) ** 2 / (b - a) * (brightest + a) / (brightest + b)
    shown = np.where(brightest > knee, bent / np.maximum(brightest, knee), 1) * linear
    return np.clip(np.where(shown <= 0.0031308, 12.92 * shown, 1.055 * shown ** (1 / 2.4) - 0.055), 0, 1)


@cache
def _tone_lut(transfer: int) -> ImageFilter.Color3DLUT:
    blue, green, red = np.meshgrid(*3 * [np.linspace(0, 1, LUT_SIZE)], indexing="ij")  # red changes fastest
    return ImageFilter.Color3DLUT(LUT_SIZE, tone_map(np.stack([red, green, blue], -1), transfer).ravel().tolist())


def frame_rgb(
    reformatter: VideoReformatter,
    frame: VideoFrame,
    width: int,
    height: int,
    interpolation: Interpolation = Interpolation.BILINEAR,
    threads: int = 1,
) -> NDArray[np.uint8]:
    """A frame as uint8 ``[H, W, 3]`` before turning; HDR is tone-mapped."""
    hdr = frame.color_trc in HDR_TRANSFERS
    wanted = "rgb48le" if hdr else "rgb24"  # FFmpeg's way from 10 to 8 bits rounds down, which tone mapping amplifies
    small = reformatter.reformat(frame, width, height, wanted, interpolation=interpolation, threads=threads)
    if not hdr:
        return np.asarray(small.to_ndarray(), np.uint8)
    eight_bits = ((small.to_ndarray().astype(np.uint32) + 128) // 257).astype(np.uint8)
    return np.asarray(Image.fromarray(eight_bits).filter(_tone_lut(frame.color_trc)))


class FrameConverter:
    """Turns decoded frames of one video into RGB; the first one decides the size and the turn of all.

    Args:
        source: the open file.
        short_side: short side of the result; None keeps the size at which the video is shown.
        like: a converter that has seen the first frame of the same video.
    """

    def __init__(self, source: Source, short_side: int | None, like: "FrameConverter | None" = None) -> None:
        self.path, self.limits, self.pixel_aspect = source.path, source.limits, pixel_aspect_of(source.stream)
        self.short_side = short_side
        # Width and height as shown, and those of the result before turning: known with the first frame.
        self.shown: tuple[int, int] = like.shown if like else (0, 0)
        self._size: tuple[int, int] = like._size if like else (0, 0)
        self._orientation: Orientation = like._orientation if like else Orientation(None)
        self._reformatter = VideoReformatter()

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """A frame as uint8 ``[H, W, 3]``, upright."""
        try:
            if self._size == (0, 0):
                self._look_at(frame)
            rgb = frame_rgb(self._reformatter, frame, *self._size, interpolation=Interpolation.BICUBIC)
            return np.ascontiguousarray(self._orientation.apply(rgb))
        except (av.FFmpegError, ValueError) as error:
            message = f"frames of the pixel format {frame.format.name} cannot be converted"
            raise UnreadableVideo(self.path, message) from error

    def _look_at(self, frame: VideoFrame) -> None:
        self._orientation = frame_orientation(frame)
        self.shown = self._orientation.size(*shown_size(frame.width, frame.height, self.pixel_aspect))
        size = shown_size(frame.width, frame.height, self.pixel_aspect, self.short_side)
        width, height = self._orientation.size(*size)
        if width * height > self.limits.pixels:
            raise TooLarge(self.path, f"{width} x {height} as shown, the limit is Limits(pixels={self.limits.pixels})")
        self._size = size
