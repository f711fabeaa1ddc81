"""Facts about a video file, found without decoding more than its first frame."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from os import PathLike, fspath

import av

from .container import DEFAULT_LIMITS, Limits, Source, open_source
from .frames import Orientation, frame_orientation, hdr_of, pixel_aspect_of, shown_size
from .subtitles import plain
from .timeline import constant_rate, read_packet_table

# Tags by the one to believe first. Only Apple's has the time zone of the place; the others are in UTC, or mean to be.
DATE_TAGS = ("com.apple.quicktime.creationdate", "date_recorded", "creation_time")
MAKE_TAGS = ("com.apple.quicktime.make", "com.android.manufacturer", "make")
MODEL_TAGS = ("com.apple.quicktime.model", "com.android.model", "model")
PLACE_TAGS = ("com.apple.quicktime.location.iso6709", "location", "location-eng")
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC).timestamp()  # a clock that was never set shows 1904 or 1970
MAX_CAMERA = 100  # characters
# Frame rates that files are meant to have. What a header says may be an average, or a rounded number of nanoseconds.
RATES = sorted(
    {Fraction(rate) for rate in range(1, 241)} | {Fraction(1000 * rate, 1001) for rate in (24, 30, 48, 60, 120)}
)
ISO_6709 = re.compile(r"([+-])(\d{2})(\d{2})?(\d{2})?(\.\d+)?([+-])(\d{3})(\d{2})?(\d{2})?(\.\d+)?")


@dataclass(frozen=True)
class Recording:
    """What a container says about when, with what and where it was recorded.

    Attributes:
        recorded: seconds since 1970; None when it does not say, or says what a clock shows that was never set.
        camera: make and model; empty when it does not say.
        latitude: degrees north; None when it does not say.
        longitude: degrees east.
    """

    recorded: float | None = None
    camera: str = ""
    latitude: float | None = None
    longitude: float | None = None


@dataclass(frozen=True)
class VideoInfo:
    """What a file holds.

    Attributes:
        path: the file, as it was given.
        container: short name of the container, such as "mov" or "matroska".
        codec: name of the video codec, such as "h264".
        width: pixels of a shown frame, after turning and with square pixels.
        height: pixels of a shown frame.
        rotation: clockwise turn, in degrees, that the player has to make.
        pixel_aspect: width of a coded pixel over its height.
        duration: seconds from the first frame to the end of the last.
        fps: frames a second, on average.
        frames: number of frames, counted in the packets; what the container says is often zero or wrong.
        keyframes: places at which decoding can start.
        constant_rate: every frame is on the screen equally long, up to rounding.
        bytes: size of the file.
        seek_problem: why seeking is not safe in this file; None when it is.
        recording: when, with what and where it was recorded, as far as the container says.
        hdr: "PQ" or "HLG" for HDR video, which is tone-mapped; else empty.
    """

    path: str
    container: str
    codec: str
    width: int
    height: int
    rotation: int
    pixel_aspect: float
    duration: float
    fps: float
    frames: int
    keyframes: int
    constant_rate: bool
    bytes: int
    seek_problem: str | None
    recording: Recording
    hdr: str


@dataclass(frozen=True)
class Timing:
    """How a file counts its frames, and what else an editor has to know of it.

    Attributes:
        rate: frames a second, exact: 30000/1001, not 29.97; of a varying rate, the usual one nearest to the average.
        timecode: of the first frame, as the file has it: "01:00:00:00", with ";" before the frames where numbers are
            dropped; empty when it has none.
        width: pixels of a shown frame, after turning and with square pixels.
        height: pixels of a shown frame.
        channels: of the sound; 0 without any.
        sample_rate: of the sound, a second.
    """

    rate: Fraction
    timecode: str
    width: int
    height: int
    channels: int = 0
    sample_rate: int = 0


def timing_of(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Timing:
    """The frame rate, start timecode, size and sound of a file; reads its head and its first frame.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    with open_source(path, limits, audio=True) as source:
        stream, sound, context = source.stream, source.audio, source.stream.codec_context
        said = stream.average_rate or stream.guessed_rate or Fraction(25)
        # QuickTime has timecode in a track of its own, which FFmpeg shows as a tag of it and of the video's.
        tags = [stream.metadata, *(other.metadata for other in source.container.streams), source.container.metadata]
        codes = (value for each in tags for name, value in each.items() if name.lower() == "timecode")
        size = shown_size(context.width, context.height, pixel_aspect_of(stream))
        width, height = _first_frame(source)[0].size(*size)
        return Timing(
            rate=min(RATES, key=lambda rate: abs(rate - said)),
            timecode=next(codes, "").strip(),
            width=width,
            height=height,
            channels=sound.channels if sound is not None else 0,
            sample_rate=sound.rate if sound is not None else 0,
        )


def probe(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> VideoInfo:
    """Look at a file: its packets and its first frame.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    with open_source(path, limits) as source:
        orientation, hdr = _first_frame(source)
    with open_source(path, limits) as source:
        table = read_packet_table(source)
        timeline, context, aspect = table.timeline, source.stream.codec_context, pixel_aspect_of(source.stream)
        width, height = orientation.size(*shown_size(context.width, context.height, aspect))
        return VideoInfo(
            path=fspath(path),
            container=source.container.format.name.split(",")[0],
            codec=context.codec.canonical_name,
            width=width,
            height=height,
            rotation=orientation.degrees,
            pixel_aspect=float(aspect or 1),
            duration=timeline.duration,
            fps=len(timeline) / timeline.duration,
            frames=len(timeline),
            keyframes=len(table.keyframes),
            constant_rate=constant_rate(timeline.pts),
            bytes=source.container.size,
            seek_problem=table.seek_problem,
            recording=recording_of(source),
            hdr=hdr,
        )


def recording_of(source: Source) -> Recording:
    """What the tags of an open file say about its recording."""
    tags = {name.lower(): value for name, value in (source.stream.metadata | source.container.metadata).items()}
    camera = camera_name(_first(tags, MAKE_TAGS), _first(tags, MODEL_TAGS))
    return Recording(date_seconds(_first(tags, DATE_TAGS)), camera, *_place(_first(tags, PLACE_TAGS)))


def camera_name(make: str, model: str) -> str:
    """Make and model in one, the make once."""
    make, model = plain(make, MAX_CAMERA), plain(model, MAX_CAMERA)
    return model if model.lower().startswith(make.lower()) else f"{make} {model}".strip()


def _first(tags: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((tags[name] for name in names if tags.get(name, "").strip()), "")


def date_seconds(text: str) -> float | None:
    """A date as seconds since 1970; None for one that a clock shows that was never set."""
    try:
        seconds = datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return seconds if seconds >= EARLIEST else None


def _place(text: str) -> tuple[float | None, float | None]:
    """Latitude and longitude of ``+52.3731+004.8922/``, also in degrees and minutes, ``+5222.39+00453.53/``."""
    match = ISO_6709.match(text.strip())
    if match is None:
        return None, None
    numbers = []
    for sign, degrees, minutes, seconds, rest in (match.groups()[:5], match.groups()[5:]):
        parts = [part for part in (degrees, minutes, seconds) if part]
        parts[-1] += rest or ""
        value = sum(float(part) / 60**place for place, part in enumerate(parts))
        numbers.append(-value if sign == "-" else value)
    return valid_place(*numbers)


def valid_place(latitude: float, longitude: float) -> tuple[float, float] | tuple[None, None]:
    """Degrees as they are given, or twice None where they are no place."""
    # A device without a fix says 0, 0, which is in the sea.
    if abs(latitude) > 90 or abs(longitude) > 180 or (latitude, longitude) == (0, 0):
        return None, None
    return latitude, longitude


def _first_frame(source: Source) -> tuple[Orientation, str]:
    """How the first frame that decodes is turned, and its kind of HDR; upright and none when none does."""
    with suppress(av.FFmpegError):  # of a packet that cannot be read: the packet table says what that means
        for packet in source.packets():
            with suppress(av.FFmpegError):
                for frame in source.stream.decode(packet):
                    return frame_orientation(frame), hdr_of(frame)
    return Orientation(None), ""
