"""Parts of a video for people: clips cut out of it, pieces that a browser can play."""

import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .container import CONTAINERS
from .errors import TimedOut, UnreadableVideo

if TYPE_CHECKING:
    from .frames import Orientation


COPYABLE = {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".ts", ".flv"}  # containers that we write; others: .mkv
QUALITY = "20"  # x264's crf: looks like the original


def _copy(source: Path, target: Path, start: float, end: float) -> None:
    """Copy packets, from the keyframe at or before ``start``."""
    import av

    with _opened_plain(source) as given, av.open(str(target), "w") as made:
        video = given.streams.video[0]
        chosen = [video, *given.streams.audio[:1]]
        streams = {stream.index: made.add_stream_from_template(stream) for stream in chosen}
        origin = _origin(video)
        given.seek(int((start + float(origin)) / video.time_base), stream=video)
        shift: Fraction | None = None  # the clip starts at zero
        over: set[int] = set()
        for packet in given.demux(chosen):
            if packet.dts is None or packet.pts is None:
                continue
            base = packet.time_base
            if shift is None:
                if packet.stream.index != video.index or not packet.is_keyframe:
                    continue
                shift = packet.dts * base
            if packet.pts * base > end + origin:
                over.add(packet.stream.index)
                if len(over) == len(chosen):
                    break
                continue
            moved = round(shift / base)
            if packet.pts < moved:
                continue
            packet.pts, packet.dts = packet.pts - moved, packet.dts - moved
            packet.stream = streams[packet.stream.index]
            made.mux(packet)
        if shift is None:
            raise ValueError("there is no keyframe to start from")


def _encode(source: Path, target: Path, start: float, end: float) -> None:
    """Decode and encode again, from the very frame, as H.264 with AAC."""
    import av

    with _opened_plain(source) as given, av.open(str(target), "w") as made:
        video, sounds = given.streams.video[0], given.streams.audio[:1]
        origin = _origin(video)
        picture = made.add_stream("libx264", rate=video.average_rate or 25, options={"crf": QUALITY})
        picture.codec_context.time_base = video.time_base
        sound = made.add_stream("aac", rate=sounds[0].rate) if sounds else None
        given.seek(int((start + float(origin)) / video.time_base), stream=video)
        first: int | None = None
        for frame in given.decode(video, *sounds):
            if frame.pts is None or not start <= frame.pts * frame.time_base - origin <= end:
                if isinstance(frame, av.VideoFrame) and frame.pts is not None and first is not None:
                    break
                continue
            if isinstance(frame, av.VideoFrame):
                upright = _upright_even(frame)
                if first is None:
                    first = frame.pts
                    picture.width, picture.height, picture.pix_fmt = upright.width, upright.height, "yuv420p"
                upright.pts, upright.time_base = frame.pts - first, video.time_base
                made.mux(picture.encode(upright))
            elif first is not None and sound is not None:
                frame.pts = None  # the encoder counts samples
                made.mux(sound.encode(frame))
        if first is None:
            raise ValueError("there is no frame in this moment")
        for stream in [picture, *([sound] if sound is not None else [])]:
            made.mux(stream.encode(None))


def _upright_even(frame: Any) -> Any:
    """The frame as it is meant to be seen, with even sides, which is all that x264 takes."""
    import av

    from .frames import frame_orientation

    rgb = frame_orientation(frame).apply(frame.to_ndarray(format="rgb24"))
    return av.VideoFrame.from_ndarray(rgb[: len(rgb) // 2 * 2, : rgb.shape[1] // 2 * 2].copy(), format="rgb24")


def _opened_plain(source: Path) -> Any:
    import av

    av.logging.set_level(None)
    # The prefix, so that no part of a name is taken for a protocol.
    return av.open(f"file:{source.absolute()}", metadata_errors="ignore")


def _origin(video: Any) -> Fraction:
    """When the first frame is shown; our seconds count from there."""
    return (video.start_time or 0) * video.time_base


PIECE = 30.0  # seconds: short enough to be ready soon, long enough to be watched
SHORT_SIDE = 720  # pixels at most
LONGEST = 120.0  # seconds that a piece may take to be made
SOUND_RATE = 48_000
# What browsers play in these containers. Others may play too: the page tries, and asks for pieces when it fails.
PLAYABLE = {"h264", "vp8", "vp9", "av1"}
PLAYABLE_SOUND = {"aac", "mp3", "opus", "vorbis", "flac"}
PLAYABLE_IN = {".mp4", ".m4v", ".mov", ".webm"}
EIGHT_BITS = {"yuv420p", "yuvj420p"}  # H.264 with more is for editing; browsers show nothing of it


def codec_of(path: Path) -> tuple[str, bool]:
    """The video codec of a file, and whether browsers play the file as it is. Reads the head of the file only."""
    import av

    try:
        with _opened(path) as container:
            video = container.streams.video[0]
            name = video.codec_context.codec.canonical_name
            plain = name != "h264" or video.codec_context.pix_fmt in EIGHT_BITS
            sounds = {sound.codec_context.codec.canonical_name for sound in container.streams.audio[:1]}
    except (av.FFmpegError, OSError, ValueError, IndexError, AttributeError) as error:
        raise UnreadableVideo(path, "the file cannot be opened") from error
    playable = name in PLAYABLE and plain and sounds <= PLAYABLE_SOUND and path.suffix.lower() in PLAYABLE_IN
    return name, playable


def convert(source: Path, target: Path, start: float, seconds: float) -> None:
    """Write a part of a video as MP4 with H.264, and its sound as AAC. Times in it count from ``start``."""
    import av

    deadline = time.monotonic() + LONGEST
    try:
        with _opened(source) as given, av.open(str(target), "w", options={"movflags": "faststart"}) as made:
            _convert(given, made, start, start + seconds, deadline, source)
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        raise UnreadableVideo(source, "this part cannot be converted") from error


def _convert(given: Any, made: Any, start: float, end: float, deadline: float, source: Path) -> None:
    import av

    from .frames import Orientation, frame_orientation, pixel_aspect_of

    video, sounds = given.streams.video[0], given.streams.audio[:1]
    video.thread_type = "AUTO"
    origin = (video.start_time or 0) * video.time_base
    picture = made.add_stream("libx264", rate=25, options={"preset": "veryfast", "crf": "23"})
    picture.pix_fmt = "yuv420p"
    picture.codec_context.time_base = Fraction(1, 90_000)  # frames keep their own times
    sound = made.add_stream("aac", rate=SOUND_RATE, layout="stereo") if sounds else None
    resampler = av.AudioResampler(format="fltp", layout="stereo", rate=SOUND_RATE) if sounds else None
    if start > 0:
        given.seek(int((start + float(origin)) / video.time_base), stream=video)
    size: tuple[int, int] | None = None  # known with the first frame
    turn = Orientation(None)
    heard = 0  # samples written
    early: list[Any] = []
    last = -1
    for frame in given.decode(video, *sounds):
        if time.monotonic() > deadline:
            raise TimedOut(source, f"converting took longer than {LONGEST:g} seconds")
        if frame.pts is None:
            continue
        at = float(frame.pts * frame.time_base - origin)
        if at >= end:
            if isinstance(frame, av.VideoFrame):
                break
            continue
        if at < start:
            continue
        if isinstance(frame, av.VideoFrame):
            if size is None:
                size, turn = _even_size(frame, pixel_aspect_of(video)), frame_orientation(frame)
                picture.width, picture.height = size[::-1] if turn.transpose else size
            shown = _upright(frame, size, turn)
            ticks = max(last + 1, round((at - start) * 90_000))
            shown.pts, shown.time_base, last = ticks, Fraction(1, 90_000), ticks
            made.mux(picture.encode(shown))
        elif sound is not None and resampler is not None:
            for part in resampler.resample(frame):
                heard = max(heard, round((at - start) * SOUND_RATE))  # a gap stays a gap
                part.pts, part.time_base = heard, Fraction(1, SOUND_RATE)
                heard += part.samples
                early.append(part)
        if size is not None and sound is not None:  # nothing can be written before the picture's size is known
            for part in early:
                made.mux(sound.encode(part))
            early.clear()
    if size is None:
        raise ValueError("there is no frame in this part")
    for stream in (picture, sound):
        if stream is not None:
            made.mux(stream.encode(None))


def _even_size(frame: Any, aspect: Fraction | None) -> tuple[int, int]:
    """Width and height of the picture: square pixels, not too large, and even sides, which is all that x264 takes."""
    width, height = frame.width * float(aspect or 1), float(frame.height)
    scale = min(1.0, SHORT_SIDE / max(1.0, min(width, height)))
    even_width, even_height = (max(2, round(side * scale / 2) * 2) for side in (width, height))
    return even_width, even_height


def _upright(frame: Any, size: tuple[int, int], orientation: "Orientation") -> Any:
    import av

    rgb = orientation.apply(frame.reformat(*size, "rgb24").to_ndarray())
    return av.VideoFrame.from_ndarray(rgb.copy(), format="rgb24").reformat(format="yuv420p")


def _opened(path: Path) -> Any:
    import av

    av.logging.set_level(None)
    # The prefix, so that no part of a name is taken for a protocol.
    options = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS}
    return av.open(f"file:{path.absolute()}", container_options=options, metadata_errors="ignore")
