"""Hits as files: a clip cut out of its video, a playlist for a player, chapters of a video."""

import itertools
import math
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import SearchError
from ..files import write_atomic
from ..video.errors import VideoError
from ..video.subtitles import plain
from .ranking import Moment
from .results import Hit

HANDLES = 0.5  # seconds before and after a moment, so that a cut does not start in the middle of a movement
MAX_TITLE = 100  # letters of a title in a file name; file systems take 255 bytes in all
COPIED_CONTAINERS = {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".ts", ".flv"}  # others become .mkv


def save_clip(hit: Hit, folder: Path, *, exact: bool = False, handles: float = HANDLES) -> Path:
    """Write the best moment of a hit as a file of its own, and return its path. A photograph is copied.

    Args:
        hit: what to cut out.
        folder: where to; made if it is not there. Where a file has the name already, this one gets a number.
        exact: start at the very frame, which needs the video to be encoded again. By default packets are copied,
            quick and without loss, from the keyframe before. What cannot be copied is encoded again in any case.
        handles: seconds before and after the moment.
    """

    def whole(write: Callable[..., object], target: Path, **options: float) -> None:
        write(hit.path, target, **options)
        if hit.file is not None and not hit.file.is_unchanged:  # a file in its place may show anything
            raise SearchError(f"{str(hit.path)!r} has changed since it was indexed: index its folder again.")

    folder.mkdir(parents=True, exist_ok=True)
    if hit.is_photo:
        try:
            target = _free(folder, _file_name(hit.title)[:MAX_TITLE], hit.path.suffix.lower())
            return write_atomic(target, partial(whole, shutil.copyfile))
        except OSError as error:
            raise SearchError(f"{str(hit.path)!r}: the photograph cannot be copied: {error.strerror}.") from error
    start, end = max(0.0, hit.start - handles), min(hit.duration, hit.end + handles)
    suffix = hit.path.suffix.lower() if hit.path.suffix.lower() in COPIED_CONTAINERS else ".mkv"
    stem = f"{_file_name(hit.title)[:MAX_TITLE]} {_clock(start)}-{_clock(end)}"
    from ..video.cut import copy_clip, encode_clip  # it imports FFmpeg, which a search without --save does not need

    copies = [] if exact else [(copy_clip, suffix), (copy_clip, ".mkv")]
    reason = ""
    for cut, extension in [*copies, (encode_clip, ".mp4")]:
        try:
            return write_atomic(_free(folder, stem, extension), partial(whole, cut, start=start, end=end))
        except VideoError as error:
            reason = error.detail
    raise SearchError(f"{str(hit.path)!r}: the clip cannot be cut out: {reason}.")


def playlist(hits: Sequence[Hit], *, mpv: bool = False) -> str:
    """An M3U playlist of the hits, each from start to end; photographs are left out.

    VLC reads the times from lines of its own, which others pass over: they play the whole files. ``mpv`` puts them into
    the address, in a form that only mpv understands.
    """
    lines = ["#EXTM3U"]
    for hit in hits:
        if hit.is_photo:
            continue
        lines.append(f"#EXTINF:{max(1, round(hit.end - hit.start))},{_file_name(hit.title)} {_clock(hit.start)}")
        # A line break in a name would end its line, and what follows would be a line of its own.
        path = str(hit.path) if str(hit.path).isprintable() else hit.path.as_uri()
        if mpv:
            lines.append(f"edl://%{len(path.encode())}%{path},{hit.start:.2f},{hit.end - hit.start:.2f}")
        else:
            lines += [f"#EXTVLCOPT:start-time={hit.start:.2f}", f"#EXTVLCOPT:stop-time={hit.end:.2f}", path]
    return "\n".join(lines) + "\n"


def save_chapters(hits: Sequence[Hit], folder: Path, title: str) -> list[Path]:
    """Write, for each video with hits, its moments as chapters (WebVTT), and return the paths.

    Args:
        hits: of one search.
        folder: where to; made if it is not there. Where a file has the name already, the new one gets a number.
        title: of every chapter.
    """
    moments: dict[Path, dict[float, Moment]] = {}
    for hit in hits:
        if hit.is_photo:
            continue
        moments.setdefault(hit.path, {}).update({moment.start: moment for moment in hit.moments})
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for path, found in moments.items():
        starts = sorted(found)
        cues = ["WEBVTT"]
        for start, following in zip(starts, [*starts[1:], math.inf], strict=True):
            end = min(found[start].end, following)  # chapters do not overlap
            text = plain(title).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            cues.append(f"{_cue_time(start)} --> {_cue_time(end)}\n{text} ({found[start].score:.3f})")
        target = _free(folder, _file_name(path.stem)[:MAX_TITLE], ".chapters.vtt")
        saved.append(write_atomic(target, "\n\n".join(cues) + "\n"))
    return saved


def _free(folder: Path, stem: str, extension: str) -> Path:
    """A name that no file has: videos of several folders may be called alike, and moments may begin in one second."""
    names = (f"{stem} ({number})" if number > 1 else stem for number in itertools.count(1))
    return next(path for name in names if not (path := folder / f"{name}{extension}").exists())


def _clock(seconds: float) -> str:
    """A time for a file name: ``1.02.03`` is one hour, two minutes, three seconds."""
    whole = int(seconds)
    return (
        f"{whole // 3600}.{whole // 60 % 60:02}.{whole % 60:02}" if whole >= 3600 else f"{whole // 60}.{whole % 60:02}"
    )


def _cue_time(seconds: float) -> str:
    """A time in a WebVTT file: ``00:01:02.500``."""
    thousandths = round(1000 * seconds)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"


def _file_name(text: str) -> str:
    """A title without the characters that file systems and playlists do not take."""
    return re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", text.encode(errors="replace").decode()).strip() or "clip"
