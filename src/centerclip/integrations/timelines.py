"""Hits as timelines for editors: one clip for each moment, with handles, a marker, and the timecodes of its file.

EDL (CMX 3600) and FCPXML are written here, field by field. OTIO and Final Cut Pro 7 XML are left to OpenTimelineIO, an
optional extra: its EDL has no FCM line and one rate, and its FCPXML needs a system's ffprobe.
"""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.util import find_spec
from math import ceil, floor
from pathlib import Path, PurePath
from typing import Any

from ..errors import SearchError, extras_named
from ..search import Hit
from ..video.errors import VideoError
from ..video.info import Timing, timing_of
from ..video.subtitles import plain

# Rates that editors have sequences of.
SEQUENCE_RATES = [Fraction(1000 * rate, 1001) for rate in (24, 30, 48, 60)] + [*map(Fraction, (24, 25, 30, 48, 50, 60))]
DROPPING = (Fraction(30000, 1001), Fraction(60000, 1001))  # rates whose timecode may drop numbers, to keep to the clock
TIMECODE = re.compile(r"(\d\d):(\d\d):(\d\d)([:;.,])(\d\d)")
MAX_LABEL = 70  # letters of a title, a clip's name or a marker: what the oldest editors read
REEL = "AX"  # a file, not a tape: editors then look for the clip by its name
FORMATS = (".edl", ".fcpxml", ".otio", ".xml")


@dataclass(frozen=True)
class Clip:
    """A moment on a timeline. Places are frames of the file, counted from its first one, at the file's own rate.

    Attributes:
        path: of the file, as the timeline names it.
        timing: how the file counts its frames.
        length: frames of the whole file.
        first: the first frame of the clip.
        last: the frame after its last one.
        mark: the frame at which the moment begins, after the handle.
        score: of the moment.
        comment: why it was found.
    """

    path: PurePath
    timing: Timing
    length: int
    first: int
    last: int
    mark: int
    score: float
    comment: str

    @property
    def drop(self) -> bool:
        """Whether the file's timecode drops numbers."""
        return ";" in self.timing.timecode and self.timing.rate in DROPPING

    @property
    def zero(self) -> int:
        """The number of the file's first frame, by its timecode."""
        return frame_number(self.timing.timecode, self.timing.rate)

    def timecode(self, frame: int) -> str:
        """The timecode of a frame of the file."""
        return timecode(self.zero + frame, self.timing.rate, self.drop)

    def frames_at(self, rate: Fraction) -> int:
        """How many frames it takes of a sequence of another rate, played at its true speed."""
        return max(1, round((self.last - self.first) * rate / self.timing.rate))


@dataclass(frozen=True)
class Timeline:
    """Clips one after another, on a sequence of one rate.

    Attributes:
        name: what was searched for.
        clips: in the order of the hits.
        rate: frames a second of the sequence: that of most of the clips.
        drop: its timecode drops numbers: that of most clips of its rate that have one does.
        left_out: path and reason of hits whose file cannot be used.
    """

    name: str
    clips: tuple[Clip, ...]
    rate: Fraction
    drop: bool
    left_out: dict[str, str]

    @property
    def zero(self) -> int:
        """The number of the sequence's first frame: by custom it begins at one hour."""
        return frame_number("01:00:00;00" if self.drop else "01:00:00:00", self.rate)

    @property
    def length(self) -> int:
        """Frames of the sequence."""
        return sum(clip.frames_at(self.rate) for clip in self.clips)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of most of the clips, pixels."""
        return Counter((clip.timing.width, clip.timing.height) for clip in self.clips).most_common(1)[0][0]

    @property
    def rate_name(self) -> str:
        """``29.97 fps drop-frame``."""
        return f"{float(self.rate):.5g} fps{' drop-frame' if self.drop else ''}"

    def label(self, clip: Clip) -> str:
        """What a clip's marker says."""
        return f"{plain(self.name, MAX_LABEL - 8)} ({clip.score:.3f})"


def timecode(frame: int, rate: Fraction, drop: bool = False) -> str:
    """The timecode of a frame number: ``01:00:00:00``, or ``01:00:00;00`` where numbers are dropped.

    Frames are counted by the whole number next to the rate: 30 for 30000/1001. Dropping skips the first 2 (of 60: 4)
    numbers of every minute but each tenth. After 24 hours it begins again.
    """
    base = ceil(rate)
    if drop:
        skipped = base // 15  # numbers a minute
        ten_minutes, minute = 600 * base - 9 * skipped, 60 * base - skipped  # frames
        tens, rest = divmod(frame, ten_minutes)
        frame += skipped * (9 * tens + max(0, rest - skipped) // minute)
    seconds, frames = divmod(frame % (24 * 3600 * base), base)
    separator = ";" if drop else ":"
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{separator}{frames:02}"


def frame_number(text: str, rate: Fraction) -> int:
    """The frame number of a timecode; 0 for text that is none. ``;`` or ``,`` before the frames means dropped numbers.

    A number that dropping skips stands for the next frame that there is.
    """
    match = TIMECODE.fullmatch(text)
    if match is None:
        return 0
    hours, minutes, seconds, frames = (int(match[place]) for place in (1, 2, 3, 5))
    base = ceil(rate)
    frame = ((60 * hours + minutes) * 60 + seconds) * base + frames
    if match[4] in ";," and rate in DROPPING:
        skipped = base // 15
        if minutes % 10 and not seconds:
            frame += max(0, skipped - frames)
        frame -= skipped * (60 * hours + minutes - (60 * hours + minutes) // 10)
    return frame


def read_clip(hit: Hit, timing: Timing, handles: float = 0.0, path: PurePath | None = None) -> Clip:
    """A hit as a clip: whole frames that hold all of the moment, and ``handles`` seconds on both sides as far as there
    is film."""
    rate, length = timing.rate, max(1, round(Fraction(hit.duration) * timing.rate))

    def frames(seconds: float) -> Fraction:
        return Fraction(round(seconds * rate, 3))  # stored times are a little off whole frames

    first = min(length - 1, max(0, floor(frames(hit.start - handles))))
    last = min(length, max(first + 1, ceil(frames(hit.end + handles))))
    mark = min(last - 1, max(first, floor(frames(hit.start))))
    comment = hit.grade if hit.line is None else f"{hit.grade}, {hit.line.source}: {hit.line.text}"
    return Clip(path or hit.path, timing, length, first, last, mark, hit.score, plain(comment, 200))


def make_timeline(
    hits: Iterable[Hit],
    name: str,
    *,
    handles: float = 0.0,
    shown_path: Callable[[Path], PurePath] = lambda path: path.absolute(),
) -> Timeline:
    """Read what the files of hits say of their frames, and lay the moments one after another.

    Args:
        hits: the moments. One whose file is not there, or is a photograph, is left out.
        name: of the timeline: what was searched for.
        handles: seconds before and after each moment.
        shown_path: how the timeline names a file; by default by its full path.

    Raises:
        SearchError: no hit is left.
    """
    timings, left_out = dict[Path, Timing](), dict[str, str]()
    kept = []
    for hit in hits:
        try:
            if hit.duration <= 0:
                raise SearchError("a photograph has no frames to cut")
            timings[hit.path] = timings.get(hit.path) or timing_of(hit.path)
            kept.append(hit)
        except (SearchError, VideoError) as error:
            left_out[str(hit.path)] = getattr(error, "detail", str(error))
    if not kept:
        reason = next(iter(left_out.values()), "nothing was found")
        raise SearchError(f"the timeline would be empty: {reason}")
    rate = _sequence_rate(Counter(timings[hit.path].rate for hit in kept).most_common(1)[0][0])
    # A file of a rate that no editor counts by is counted in the sequence's frames.
    timings = {
        path: made if made.rate in SEQUENCE_RATES else replace(made, rate=rate) for path, made in timings.items()
    }
    clips = tuple(read_clip(hit, timings[hit.path], handles, shown_path(hit.path)) for hit in kept)
    dropping = [clip.drop for clip in clips if clip.timing.rate == rate and clip.timing.timecode]
    return Timeline(plain(name, MAX_LABEL) or "hits", clips, rate, 2 * sum(dropping) > len(dropping), left_out)


def _sequence_rate(rate: Fraction) -> Fraction:
    """The rate of a sequence for files of a rate: the same, one that shows frames equally long, or the nearest."""

    def unlike(usual: Fraction) -> tuple[bool, Fraction]:
        return 1 not in ((usual / rate).denominator, (rate / usual).denominator), abs(usual - rate)

    return min(SEQUENCE_RATES, key=unlike)


def formats() -> list[str]:
    """The suffixes of the formats that can be written here: two of them only where OpenTimelineIO is installed."""
    return [suffix for suffix in FORMATS if suffix not in (".otio", ".xml") or find_spec("opentimelineio") is not None]


def write_timeline(timeline: Timeline, suffix: str) -> str:
    """A timeline as text, in the format of a suffix: one of :data:`FORMATS`."""
    writers: dict[str, Callable[[Timeline], str]] = {
        ".edl": _edl, ".fcpxml": _fcpxml, ".otio": lambda made: str(_otio(made).to_json_string()), ".xml": _fcp7,
    }  # fmt: skip
    if suffix not in writers:
        raise SearchError(f"{suffix!r} is no timeline that can be written; name it .edl, .fcpxml, .otio or .xml")
    return writers[suffix](timeline)


def _edl(timeline: Timeline) -> str:
    """CMX 3600. Each event has the timecodes of its file, at its own rate; where that is not the sequence's, an M2 line
    gives its speed."""
    lines = [f"TITLE: {timeline.name}", f"FCM: {'DROP FRAME' if timeline.drop else 'NON-DROP FRAME'}", ""]
    at = timeline.zero
    for number, clip in enumerate(timeline.clips, 1):
        end = at + clip.frames_at(timeline.rate)
        source = [clip.timecode(clip.first), clip.timecode(clip.last)]
        record = [timecode(frame, timeline.rate, timeline.drop) for frame in (at, end)]
        mark = at + round((clip.mark - clip.first) * timeline.rate / clip.timing.rate)
        channels = "AA/V" if clip.timing.channels else "V"
        lines.append(f"{number:03}  {REEL:<8} {channels:<5} C        {' '.join(source + record)}")
        if clip.timing.rate != timeline.rate:
            speed = float(clip.timing.rate / timeline.rate * ceil(timeline.rate))  # file frames a second of timecode
            lines.append(f"M2   {REEL:<8} {speed:05.1f}                {source[0]}")
        lines += [
            f"* FROM CLIP NAME: {_text(clip.path.name)}",
            f"* SOURCE FILE: {_text(str(clip.path))}",
            f"* LOC: {timecode(mark, timeline.rate, timeline.drop)} GREEN   {timeline.label(clip)}",
            "",
        ]
        at = end
    return "\n".join(lines)


def _fcpxml(timeline: Timeline) -> str:
    """FCPXML 1.10, for Final Cut Pro and DaVinci Resolve."""
    root = ET.Element("fcpxml", version="1.10")
    resources = ET.SubElement(root, "resources")
    ids: dict[object, str] = {}  # of formats and files

    def format_id(rate: Fraction, width: int, height: int) -> str:
        key = (rate, width, height)
        if key not in ids:
            ids[key] = f"r{len(ids) + 1}"
            size = {"width": str(width), "height": str(height)}
            ET.SubElement(resources, "format", {"id": ids[key], "frameDuration": _time(1, rate), **size})
        return ids[key]

    sequence_format = format_id(timeline.rate, *timeline.size)
    for clip in timeline.clips:
        timing, rate = clip.timing, clip.timing.rate
        file_format = format_id(rate, timing.width, timing.height)
        if clip.path in ids:
            continue
        ids[clip.path] = f"r{len(ids) + 1}"
        facts = {"start": _time(clip.zero, rate), "duration": _time(clip.length, rate), "hasVideo": "1"}
        if timing.channels:
            facts |= {"hasAudio": "1", "audioSources": "1"}
            facts |= {"audioChannels": str(timing.channels), "audioRate": str(timing.sample_rate)}
        named = {"id": ids[clip.path], "name": _text(clip.path.name), "format": file_format}
        asset = ET.SubElement(resources, "asset", {**named, **facts})
        ET.SubElement(asset, "media-rep", kind="original-media", src=clip.path.as_uri())
    event = ET.SubElement(ET.SubElement(root, "library"), "event", name="CenterCLIP")
    sequence = ET.SubElement(
        ET.SubElement(event, "project", name=timeline.name),
        "sequence",
        format=sequence_format,
        duration=_time(timeline.length, timeline.rate),
        tcStart=_time(timeline.zero, timeline.rate),
        tcFormat="DF" if timeline.drop else "NDF",
        audioLayout="stereo",
        audioRate="48k",
    )
    spine, at = ET.SubElement(sequence, "spine"), timeline.zero
    for clip in timeline.clips:
        rate, frames = clip.timing.rate, clip.frames_at(timeline.rate)
        item = ET.SubElement(
            spine,
            "asset-clip",
            ref=ids[clip.path],
            name=_text(clip.path.name),
            offset=_time(at, timeline.rate),
            start=_time(clip.zero + clip.first, rate),
            duration=_time(frames, timeline.rate),
            tcFormat="DF" if clip.drop else "NDF",
        )
        if rate != timeline.rate:  # it plays at its true speed: not faster, to fit the sequence's rate
            ET.SubElement(item, "conform-rate", scaleEnabled="0", srcFrameRate=f"{float(rate):.4g}")
        where = {"start": _time(clip.zero + clip.mark, rate), "duration": _time(1, rate)}
        ET.SubElement(item, "marker", {**where, "value": timeline.label(clip), "note": clip.comment})
        at += frames
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE fcpxml>\n{ET.tostring(root, "unicode")}\n'


def _otio(timeline: Timeline, *, whole_frames: bool = False) -> Any:
    """An ``opentimelineio`` timeline: a track of video, and one of the sound of the clips that have any.

    ``whole_frames``: clips of another rate last a whole number of the sequence's frames.
    """
    with extras_named():
        import opentimelineio as otio
    schema = otio.schema

    def span(first: int, frames: int | Fraction, rate: Fraction) -> Any:
        start, duration = (otio.opentime.RationalTime(float(number), float(rate)) for number in (first, frames))
        return otio.opentime.TimeRange(start, duration)

    def counting(drop: bool) -> dict[str, Any]:
        return {"fcp_xml": {"timecode": {"displayformat": "DF" if drop else "NDF"}}}

    start = span(timeline.zero, 0, timeline.rate).start_time
    made = schema.Timeline(timeline.name, global_start_time=start, metadata=counting(timeline.drop))
    # Says the sequence's rate: the clips alone would have that of the fastest of them.
    made.tracks.source_range = span(0, timeline.length, timeline.rate)
    width, height = timeline.size
    made.metadata["fcp_xml"]["media"] = {
        "video": {"format": {"samplecharacteristics": {"width": str(width), "height": str(height)}}}
    }
    kinds = [schema.TrackKind.Video]
    kinds += [schema.TrackKind.Audio] if any(clip.timing.channels for clip in timeline.clips) else []
    for kind in kinds:
        track = schema.Track(kind, kind=kind)
        made.tracks.append(track)
        for clip in timeline.clips:
            rate = clip.timing.rate
            lasting = clip.frames_at(timeline.rate) * rate / timeline.rate if whole_frames else clip.last - clip.first
            taken = span(clip.zero + clip.first, lasting, rate)
            if kind == schema.TrackKind.Audio and not clip.timing.channels:
                track.append(schema.Gap(source_range=taken))
                continue
            whole = span(clip.zero, clip.length, rate)
            media = schema.ExternalReference(clip.path.as_uri(), available_range=whole, metadata=counting(clip.drop))
            media.name = _text(clip.path.name)
            item = schema.Clip(media.name, media_reference=media, source_range=taken)
            if kind == schema.TrackKind.Video:
                facts = {"score": clip.score, "query": timeline.name, "comment": clip.comment}
                marker = schema.Marker(timeline.label(clip), span(clip.zero + clip.mark, 1, rate), "GREEN")
                marker.comment, marker.metadata["centerclip"] = clip.comment, facts
                item.markers.append(marker)
            track.append(item)
    return made


def _fcp7(timeline: Timeline) -> str:
    """Final Cut Pro 7 XML, which Premiere Pro, Avid and others read."""
    made = _otio(timeline, whole_frames=True)
    with extras_named():
        import otio_fcp_adapter  # noqa: F401 - OpenTimelineIO finds it by its name
        from opentimelineio import adapters, opentime
    for item in made.find_clips():
        for marker in item.markers:  # this format counts them from the start of the file, not by its timecode
            there, zero = marker.marked_range, item.media_reference.available_range.start_time
            marker.marked_range = opentime.TimeRange(there.start_time - zero, there.duration)
    return str(adapters.write_to_string(made, "fcp_xml"))


def _time(frames: int, rate: Fraction) -> str:
    """A number of frames in seconds, as FCPXML has them: ``1001/30000s``."""
    seconds = frames / rate
    return f"{seconds.numerator}s" if seconds.denominator == 1 else f"{seconds.numerator}/{seconds.denominator}s"


def _text(name: str) -> str:
    """A name on one line, of valid text."""
    return "".join(letter if letter.isprintable() else "�" for letter in name.encode(errors="replace").decode())
