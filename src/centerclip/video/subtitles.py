"""Text that comes with a video, with its times: subtitles inside it and beside it, chapters, title and description.

Nothing here fails a video: what cannot be read is left out and named in a note. FFmpeg is imported on first use.
"""

import hashlib
import html
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import first_line
from ..files import path_of
from .errors import VideoError

if TYPE_CHECKING:
    from .container import Source

TextSource = Literal["subtitle", "chapter", "title", "description", "spoken", "written", "name"]

SIDECAR_SUFFIXES = frozenset({".srt", ".vtt", ".ass", ".ssa"})
TEXT_CODECS = frozenset({"ass", "mov_text", "srt", "ssa", "subrip", "text", "webvtt"})  # the others are pictures
DESCRIPTIONS = ("description", "comment", "synopsis")  # tags, whatever their case

MAX_SIDECARS = 32  # of a video: a film in all languages of a festival
MAX_SIDECAR_BYTES = 16 * 2**20  # a film of three hours with styles has about one
MAX_LINES = 50_000  # of a video: a day of talk at one line every two seconds
MAX_LINE_LETTERS = 2_000
MAX_DESCRIPTION_LETTERS = 20_000
MAX_SECONDS = 60.0  # for reading the subtitle packets of one file
ROLLING_SECONDS = 1.0  # captions that scroll repeat the line before within so much

# Between the name of a video and the suffix of its subtitles: a language, or what they are for (film.en.forced.srt).
LABEL, MAX_LABELS = re.compile(r"\.[A-Za-z][A-Za-z_-]{0,15}"), 3
TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
TIMES = re.compile(rf"^\s*{TIME}\s*-->\s*{TIME}")
ASS_TIME = re.compile(TIME)
ASS_FIELDS = ("layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text")


@dataclass(frozen=True)
class Line:
    """A line of text in a video.

    Attributes:
        start: seconds from the video's first frame; 0 for what is about the whole video.
        end: seconds; the video's length for what is about all of it.
        text: what is said or written, without markup.
        source: "subtitle", "chapter", "title" or "description", which come with the file; "spoken" was transcribed,
            "written" read from the picture; "name" is the file's, of hits only.
    """

    start: float
    end: float
    text: str
    source: TextSource


class Sidecars:
    """Finds the subtitle files of videos: in the same folder and of the same name. Lists each folder once."""

    def __init__(self) -> None:
        self._folders: dict[Path, dict[str, list[str]]] = {}

    def of(self, path: str | PathLike[str]) -> list[Path]:
        """Those of a video, such as ``film.srt`` and ``film.en.vtt`` of ``film.mp4``."""
        video = path_of(path)
        if video.parent not in self._folders:
            self._folders[video.parent] = _sidecars_in(video.parent)
        by_name = self._folders[video.parent]
        names = sorted({*by_name.get(video.stem, ()), *by_name.get(video.name, ())})
        return [video.with_name(name) for name in names[:MAX_SIDECARS]]


def _sidecars_in(folder: Path) -> dict[str, list[str]]:
    """The subtitle files of a folder by the name that they share with a video, with or without its suffix."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return {}
    others = [path for path in paths if path.suffix.lower() not in SIDECAR_SUFFIXES]
    videos = {name for path in others for name in (path.stem, path.name)}
    by_name: dict[str, list[str]] = {}
    for path in paths:
        if path.suffix.lower() in SIDECAR_SUFFIXES:
            name, labels = path.stem, 0
            # film.part.srt is that of film.part.mp4, if there is one.
            while name not in videos and labels < MAX_LABELS and LABEL.fullmatch(Path(name).suffix):
                name, labels = Path(name).stem, labels + 1
            by_name.setdefault(name, []).append(path.name)
    return by_name


def sidecar_stamp(sidecars: Iterable[Path]) -> str:
    """Changes whenever one of the files is added, changed or removed; empty for none."""
    stamps = ""
    for path in sidecars:
        with suppress(OSError):
            status = path.stat()
            stamps += repr((path.name, status.st_size, status.st_mtime_ns))
    digest = hashlib.blake2b(stamps.encode(errors="surrogateescape"), digest_size=8)
    return digest.hexdigest() if stamps else ""


def read_lines(path: str | PathLike[str], sidecars: Iterable[Path] = (), *, duration: float) -> tuple[list[Line], str]:
    """The text that comes with a video, in the order of time, and a note about what could not be read.

    Args:
        path: the video.
        sidecars: its subtitle files; see :class:`Sidecars`.
        duration: of the video, in seconds. What starts later is left out.
    """
    lines: list[Line] = []
    notes: list[str] = []
    for sidecar in sidecars:
        try:
            lines += read_sidecar(sidecar)
        except (OSError, ValueError) as error:
            notes.append(f"the subtitles {sidecar.name!r} cannot be read ({first_line(error)})")
    try:
        lines += _inside(fspath(path))
    except (VideoError, OSError, ValueError) as error:
        reason = error.detail if isinstance(error, VideoError) else first_line(error)
        notes.append(f"the subtitles inside cannot be read ({reason})")
    whole: dict[tuple[int, str, str], Line] = {}  # several tracks often have the same
    for line in lines:
        start, end = max(line.start, 0.0), min(line.end, duration)
        if line.source in ("title", "description"):
            end = duration
        if line.text and start < max(duration, 1e-6) and end >= start:
            whole.setdefault((round(start), line.source, line.text), replace(line, start=start, end=end))
    kept = sorted(whole.values(), key=lambda line: (line.start, line.end))
    if len(kept) > MAX_LINES:
        notes.append(f"{len(kept):,} lines of text, of which the first {MAX_LINES:,} are kept")
    return kept[:MAX_LINES], "; ".join(notes)


def read_sidecar(path: Path) -> list[Line]:
    """The lines of a subtitle file; a broken cue is skipped. Raises OSError, and ValueError when there is no cue."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a file")
    if status.st_size > MAX_SIDECAR_BYTES:
        raise ValueError(f"{status.st_size:,} bytes, more than {MAX_SIDECAR_BYTES:,}")
    rows = _decode(path.read_bytes()).splitlines()
    cues = _ass_cues(rows) if path.suffix.lower() in (".ass", ".ssa") else _srt_cues(rows)
    lines = list(islice(_unroll(cues), MAX_LINES))
    if not lines and any(row.strip() not in ("", "WEBVTT") for row in rows):
        raise ValueError("no line with a time")
    return lines


def _decode(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")  # what old tools of the West write


def _srt_cues(rows: list[str]) -> Iterator[tuple[float, float, list[str]]]:
    """Start, end and lines of each cue of an SRT or WebVTT file."""
    at = 0
    while at < len(rows):
        times = TIMES.match(rows[at])
        at += 1
        if times is None:
            continue
        text: list[str] = []
        while at < len(rows) and rows[at].strip() and not TIMES.match(rows[at]):
            text.append(rows[at])
            at += 1
        if at < len(rows) and rows[at].strip() and text and text[-1].strip().isdigit():
            text.pop()  # the number of the next cue, where the empty line before it is missing
        parts = times.groups()
        yield _seconds(parts[:4]), _seconds(parts[4:]), _clean("\n".join(text))


def _ass_cues(rows: list[str]) -> Iterator[tuple[float, float, list[str]]]:
    """Start, end and lines of each dialogue of an ASS or SSA file."""
    fields: tuple[str, ...] = ASS_FIELDS
    cues = []
    in_events = False
    for row in rows:
        kind, _, content = row.partition(":")
        if row.startswith("["):
            in_events = row.strip().lower() == "[events]"
        elif in_events and kind == "Format":
            fields = tuple(field.strip().lower() for field in content.split(","))
        elif in_events and kind == "Dialogue":
            values = dict(zip(fields, content.split(",", len(fields) - 1), strict=False))
            start, end = (ASS_TIME.fullmatch(values.get(name, "").strip()) for name in ("start", "end"))
            if start and end and "text" in values:
                cues.append((_seconds(start.groups()), _seconds(end.groups()), _clean(values["text"])))
    return iter(sorted(cues, key=lambda cue: cue[0]))  # the file may be in any order


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0) + float(f"0.{fraction or 0}")


def _clean(text: str) -> list[str]:
    """The lines of a cue without markup: ASS's ``{\\i1}``, HTML's ``<i>``, WebVTT's times inside a line."""
    if re.search(r"\{[^}]*\\p[1-9]", text):  # a drawing
        return []
    text = re.sub(r"\{\s*\\[^}]*\}", "", text)
    text = html.unescape(re.sub(r"</?[A-Za-z0-9:.][^<>]*>", "", text))
    text = re.sub(r"\\[Nn]", "\n", text).replace("\\h", " ")
    return [line for row in text.split("\n") if (line := plain(row))]


def plain(text: str, letters: int = MAX_LINE_LETTERS) -> str:
    """Text on one line, without control codes, and not longer than so many letters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * letters])
    return " ".join(shown.split())[:letters].rstrip()


def _unroll(cues: Iterable[tuple[float, float, list[str]]]) -> Iterator[Line]:
    """Cues as lines; what a scrolling caption repeats of the one before is left out."""
    last: Line | None = None
    shown: list[str] = []  # by the cue before
    for start, end, rows in cues:
        if end < start or not rows:
            continue
        follows = last is not None and last.start <= start <= last.end + ROLLING_SECONDS
        new = [row for row in rows if not (follows and row in shown)]
        shown = rows
        if last is not None and follows and not new:
            last = replace(last, end=max(last.end, end))
            continue
        if last is not None:
            yield last
        last = Line(start, end, plain(" ".join(new)), "subtitle")
    if last is not None:
        yield last


def _inside(name: str) -> Iterator[Line]:
    """Title, description, chapters and text subtitles of a container."""
    from .container import DEFAULT_LIMITS, Deadline, open_source

    with open_source(name, DEFAULT_LIMITS, Deadline(name, MAX_SECONDS)) as source:
        tags = {key.lower(): value for key, value in source.container.metadata.items()}
        yield Line(0.0, 0.0, plain(tags.get("title", "")), "title")
        for text in dict.fromkeys(plain(tags.get(key, ""), MAX_DESCRIPTION_LETTERS) for key in DESCRIPTIONS):
            yield Line(0.0, 0.0, text, "description")
        for chapter in islice(source.container.chapters(), MAX_LINES):
            tick = float(chapter["time_base"] or 0)
            start, end = (chapter[key] * tick - float(source.origin) for key in ("start", "end"))
            title = {key.lower(): value for key, value in chapter["metadata"].items()}.get("title", "")
            yield Line(start, end, plain(title), "chapter")
        yield from _subtitle_streams(source)


def _subtitle_streams(source: "Source") -> Iterator[Line]:
    import av
    from av.stream import Discard

    streams = [each for each in source.container.streams.subtitles if each.codec_context.name in TEXT_CODECS]
    if not streams:
        return
    source.stream.discard = Discard.all  # MP4 is then not read between the subtitles
    cues: dict[int, list[tuple[float, float, list[str]]]] = {each.index: [] for each in streams}
    for stream in streams:
        stream.discard = Discard.default
    for count, packet in enumerate(source.container.demux(streams)):
        source.deadline.check()
        if packet.pts is None or packet.time_base is None or not packet.size:
            continue
        if count > 2 * MAX_LINES:
            break
        start = float(packet.pts * packet.time_base - source.origin)
        end = start + float((packet.duration or 0) * packet.time_base)
        with suppress(av.FFmpegError, ValueError, NotImplementedError):  # one broken line; the next may be fine
            for each in packet.decode():
                text = bytes(getattr(each, "ass", b"")).decode(errors="replace").split(",", 8)[-1]
                cues[packet.stream.index].append((start, end, _clean(text)))
    for track in cues.values():
        yield from _unroll(sorted(track, key=lambda cue: cue[0]))
