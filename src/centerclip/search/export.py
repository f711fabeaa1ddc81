"""Hits as files: a clip cut out of its video, and a playlist for a player."""

import os
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from .errors import SearchError
from .results import Hit

LEAD = 0.5  # seconds before and after a moment, so that a cut does not start in the middle of a movement
COPYABLE = {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".ts", ".flv"}  # containers that we write; others: .mkv
QUALITY = "20"  # x264's crf: looks like the original


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


def _copy(source: Path, target: Path, start: float, end: float) -> None:
    """Copy packets, from the keyframe at or before ``start``."""
    import av

    with _opened(source) as given, av.open(str(target), "w") as made:
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

    with _opened(source) as given, av.open(str(target), "w") as made:
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
                upright = _upright(frame)
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


def _upright(frame: Any) -> Any:
    """The frame as it is meant to be seen, with even sides, which is all that x264 takes."""
    import av

    from ..video.picture import frame_orientation

    rgb = frame_orientation(frame).apply(frame.to_ndarray(format="rgb24"))
    return av.VideoFrame.from_ndarray(rgb[: len(rgb) // 2 * 2, : rgb.shape[1] // 2 * 2].copy(), format="rgb24")


def _opened(source: Path) -> Any:
    import av

    av.logging.set_level(None)
    # The prefix, so that no part of a name is taken for a protocol.
    return av.open(f"file:{source.absolute()}", metadata_errors="ignore")


def _origin(video: Any) -> Fraction:
    """When the first frame is shown; our seconds count from there."""
    return (video.start_time or 0) * video.time_base


def _clock(seconds: float) -> str:
    """A time as it can stand in a file name: ``1.02.03`` is one hour, two minutes, three seconds."""
    whole = int(seconds)
    return (
        f"{whole // 3600}.{whole // 60 % 60:02}.{whole % 60:02}" if whole >= 3600 else f"{whole // 60}.{whole % 60:02}"
    )


def _plain(text: str) -> str:
    """A name without what file systems and playlists do not take."""
    return re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", text.encode(errors="replace").decode()).strip() or "clip"
