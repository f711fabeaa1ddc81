"""Parts of a video for people: clips cut out of it, pieces that a browser can play, thumbnails."""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
from av.container import OutputContainer
from av.video.reformatter import VideoReformatter

from .container import DEFAULT_LIMITS, Limits, Source, open_source, short_reason
from .errors import UnreadableVideo
from .frames import Orientation, even_size, frame_orientation, frame_rgb, pixel_aspect_of, shown_size
from .photo import is_photo, read_photo

if TYPE_CHECKING:
    from PIL.Image import Image

CLIP_LIMITS = Limits(seconds=3600.0)  # a person waits for it, and a slow machine may encode minutes of 4K
CLIP_QUALITY = {"crf": "20"}  # looks like the original
PIECE_LIMITS = Limits(seconds=120.0)  # one at a time is converted, so others wait for it too
PIECE_QUALITY = {"preset": "veryfast", "crf": "23"}  # the viewer waits for it
PIECE_SECONDS = 30.0  # short enough to be ready soon, long enough to be watched
PIECE_SHORT_SIDE = 720  # pixels at most
VIDEO_CLOCK = 90_000  # ticks a second of what we encode: frames keep their own times, whatever the frame rate
SAMPLE_RATE = 48_000  # of its audio; AAC does not know every rate that files have
# What browsers play in these containers. Others may play too: the page tries, and asks for pieces when it fails.
PLAYABLE = {"h264", "vp8", "vp9", "av1"}
PLAYABLE_AUDIO = {"aac", "mp3", "opus", "vorbis", "flac"}
PLAYABLE_SUFFIXES = {".mp4", ".m4v", ".mov", ".webm"}
EIGHT_BITS = {"yuv420p", "yuvj420p"}  # H.264 with more is for editing; browsers show nothing of it


def copy_clip(path: str | PathLike[str], target: str | PathLike[str], start: float, end: float) -> None:
    """Copy a part of a video with its sound, without loss, from the keyframe at or before ``start``, in seconds.

    Raises:
        VideoError: also when the container of ``target``, which its suffix names, does not take the codec.
    """
    with _opened(path, target, CLIP_LIMITS) as (source, output):
        outputs = {stream.index: output.add_stream_from_template(stream) for stream in source.streams}
        source.seek(start)
        shift: Fraction | None = None  # the clip starts at zero
        ended: set[int] = set()
        for packet in _packets_with_dts(source):
            index, tick = packet.stream.index, packet.time_base
            if shift is None:
                if index != source.stream.index or not packet.is_keyframe:
                    continue
                shift = packet.dts * tick
            if packet.pts * tick > end + source.origin:
                ended.add(index)
                if len(ended) == len(outputs):
                    break
                continue
            ticks = round(shift / tick)
            if packet.pts < ticks:
                continue
            packet.pts, packet.dts = packet.pts - ticks, packet.dts - ticks
            packet.stream = outputs[index]
            output.mux(packet)
        if shift is None:
            raise ValueError("there is no keyframe to start from")


def encode_clip(path: str | PathLike[str], target: str | PathLike[str], start: float, end: float) -> None:
    """Write the frames shown in ``[start, end)`` seconds as H.264, and their sound as AAC, at full size."""
    with _opened(path, target, CLIP_LIMITS) as (source, output):
        _transcode(source, output, start, end, CLIP_QUALITY, None)


def encode_piece(path: Path, target: Path, number: int) -> None:
    """Write piece ``number`` of a video, ``PIECE_SECONDS`` of it, as MP4 for a browser. Its times count from its start.

    Raises:
        VideoError: the part cannot be read, or takes too long to convert.
    """
    with _opened(path, target, PIECE_LIMITS) as (source, output):
        start = number * PIECE_SECONDS
        _transcode(source, output, start, start + PIECE_SECONDS, PIECE_QUALITY, PIECE_SHORT_SIDE)


def codec_of(path: Path) -> tuple[str, bool, bool]:
    """The video codec of a file, whether browsers play the file as it is, and whether they play its sound, if any.

    Reads the head of the file only. A photograph counts as playable.
    """
    if is_photo(path):
        return read_photo(path, short_side=1).format, True, True
    with open_source(path, DEFAULT_LIMITS, audio=True) as source:
        context = source.stream.codec_context
        codec = context.codec.canonical_name
        playable = codec in PLAYABLE and (codec != "h264" or context.pix_fmt in EIGHT_BITS)
        decoder = source.audio and source.audio.codec_context
        audible = source.audio is None or (decoder is not None and decoder.codec.canonical_name in PLAYABLE_AUDIO)
    return codec, playable and audible and path.suffix.lower() in PLAYABLE_SUFFIXES, audible


def thumbnail(
    path: str | PathLike[str], seconds: float, width: int, height: int | None = None, *, limits: Limits = DEFAULT_LIMITS
) -> "Image":
    """The frame on the screen at a time, fitted into ``width`` x ``height`` pixels (by default a square)."""
    from PIL import Image

    from .reader import read_times

    height = height or width
    if is_photo(path):
        image = Image.fromarray(read_photo(path, short_side=max(width, height), limits=limits).rgb)
        image.thumbnail((width, height), Image.Resampling.LANCZOS)
        return image
    # Read at least as large as needed, so that shrinking smooths: the short side must fill the longer side of the box.
    frame = read_times(path, [seconds], short_side=max(width, height), limits=limits).rgb[0]
    image = Image.fromarray(frame)
    image.thumbnail((width, height), Image.Resampling.LANCZOS)
    return image


@contextmanager
def _opened(
    path: str | PathLike[str], target: str | PathLike[str], limits: Limits
) -> Iterator[tuple[Source, OutputContainer]]:
    """Open a video and the file that a part of it is written to; whatever fails is a VideoError."""
    options = {"movflags": "faststart"} if str(target).endswith(".mp4") else {}
    with open_source(path, limits, audio=True) as source:
        try:
            with av.open(str(target), "w", options=options) as output:
                yield source, output
        except (av.FFmpegError, OSError, ValueError, IndexError) as error:  # PyAV's for a stream that appears halfway
            raise UnreadableVideo(path, f"this part cannot be converted ({short_reason(error)})") from error


def _packets_with_dts(source: Source) -> Iterator[Any]:
    """The packets from the current position on, with decoding timestamps.

    Matroska stores none. FFmpeg works them out, except for the first packets after a seek in a video with B-frames.
    """
    held: list[Any] = []
    for packet in source.packets():
        if packet.pts is None:
            continue
        if packet.dts is None or held:
            held.append(packet)
        if packet.dts is None or (held and packet.stream.index != source.stream.index):
            continue
        missing = [earlier for earlier in held if earlier.dts is None]
        for steps, earlier in enumerate(reversed(missing), start=1):
            earlier.dts = packet.dts - steps * (packet.duration or 1)
        yield from held or [packet]
        held = []


def _transcode(
    source: Source, output: OutputContainer, start: float, end: float, quality: dict[str, str], short_side: int | None
) -> None:
    """Decode the frames and the sound of ``[start, end)`` and encode them as H.264 and AAC, in sync."""
    video_out = output.add_stream("libx264", rate=25, options=quality)  # a nominal rate: see VIDEO_CLOCK
    video_out.pix_fmt, video_out.codec_context.time_base = "yuv420p", Fraction(1, VIDEO_CLOCK)
    audio_out = resampler = None
    if source.audio is not None and source.audio.codec_context is not None:
        audio_out = output.add_stream("aac", rate=SAMPLE_RATE, layout="stereo")
        resampler = av.AudioResampler(format="fltp", layout="stereo", rate=SAMPLE_RATE)
    source.seek(start)
    to_rgb = VideoReformatter()
    size: tuple[int, int] | None = None  # before turning; known with the first frame
    orientation = Orientation(None)
    waiting: list[av.AudioFrame] = []  # nothing can be written before the size of the video is known
    last_tick, samples = -1, 0
    for frame in _decoded_frames(source):
        if frame.pts is None:
            continue
        at = float(frame.pts * frame.time_base - source.origin)
        if at >= end and isinstance(frame, av.VideoFrame):
            break
        if not start <= at < end:
            continue
        if isinstance(frame, av.VideoFrame):
            if size is None:
                orientation = frame_orientation(frame)
                size = even_size(*shown_size(frame.width, frame.height, pixel_aspect_of(source.stream)), short_side)
                video_out.width, video_out.height = orientation.size(*size)
            rgb = orientation.apply(frame_rgb(to_rgb, frame, *size, threads=0)).copy()
            upright = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="yuv420p")
            last_tick = max(last_tick + 1, round((at - start) * VIDEO_CLOCK))
            upright.pts, upright.time_base = last_tick, Fraction(1, VIDEO_CLOCK)
            output.mux(video_out.encode(upright))
        elif resampler is not None:
            for part in resampler.resample(frame):
                samples = max(samples, round((at - start) * SAMPLE_RATE))  # a gap stays a gap
                part.pts, part.time_base = samples, Fraction(1, SAMPLE_RATE)
                samples += part.samples
                waiting.append(part)
        if size is not None and audio_out is not None:
            for part in waiting:
                output.mux(audio_out.encode(part))
            waiting.clear()
    if size is None:
        raise ValueError("there is no frame in it")
    for stream in (video_out, audio_out):
        if stream is not None:
            output.mux(stream.encode(None))


def _decoded_frames(source: Source) -> Iterator[Any]:
    """Video and audio frames from the current position on; no audio where there is no decoder for it."""
    for packet in source.packets():
        if packet.stream.codec_context is not None:
            yield from packet.decode()
