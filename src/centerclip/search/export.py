"""Hits as files: a clip cut out of its video, and a playlist for a player."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import SearchError
from ..video.cut import COPYABLE, _copy, _encode
from .results import Hit

LEAD = 0.5  # seconds before and after a moment, so that a cut does not start in the middle of a movement


def save_clip(hit: Hit, folder: Path, *, exact: bool = False) -> Path:
    """Write the best moment of a hit as a file of its own, and say which.

    Args:
        hit: what to cut out.
        folder: where to; made if it is not there. A file of the same name is replaced.
        exact: start at the very frame, which needs the picture to be encoded again. By default packets are copied,
            quick and without loss, from the keyframe before. What cannot be copied is encoded again in any case.
    """
    import av

    folder.mkdir(parents=True, exist_ok=True)
    start, end = max(0.0, hit.start - LEAD), min(hit.duration, hit.end + LEAD)
    suffix = hit.path.suffix.lower() if hit.path.suffix.lower() in COPYABLE else ".mkv"
    stem = f"{_plain(hit.title)[:100]} {_clock(start)}-{_clock(end)}"
    attempts = [] if exact else [(_copy, folder / f"{stem}{suffix}"), (_copy, folder / f"{stem}.mkv")]
    reason: Exception | None = None
    for cut, target in [*attempts, (_encode, folder / f"{stem}.mp4")]:
        partial = target.with_name(f".{os.getpid()}.{target.name}")
        try:
            cut(hit.path, partial, start, end)
            partial.replace(target)
            return target
        except (av.FFmpegError, ValueError, OSError) as error:
            reason = error
        finally:
            partial.unlink(missing_ok=True)
    raise SearchError(f"{str(hit.path)!r}: the moment cannot be cut out ({reason})")


def playlist(hits: Sequence[Hit]) -> str:
    """An M3U playlist of the hits, each from start to end (VLC and mpv keep to it)."""
    lines = ["#EXTM3U"]
    for hit in hits:
        lines += [
            f"#EXTINF:{max(1, round(hit.end - hit.start))},{_plain(hit.title)} {_clock(hit.start)}",
            f"#EXTVLCOPT:start-time={hit.start:.2f}",
            f"#EXTVLCOPT:stop-time={hit.end:.2f}",
            str(hit.path),
        ]
    return "\n".join(lines) + "\n"


def _clock(seconds: float) -> str:
    """A time as it can stand in a file name: ``1.02.03`` is one hour, two minutes, three seconds."""
    whole = int(seconds)
    return (
        f"{whole // 3600}.{whole // 60 % 60:02}.{whole % 60:02}" if whole >= 3600 else f"{whole // 60}.{whole % 60:02}"
    )


def _plain(text: str) -> str:
    """A name without what file systems and playlists do not take."""
    return re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", text.encode(errors="replace").decode()).strip() or "clip"
