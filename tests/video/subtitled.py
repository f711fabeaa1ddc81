"""Clips with subtitles, chapters and tags inside."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

HEADER = b"""[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour
Style: Default,Arial,16,&Hffffff

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
MILLISECOND = Fraction(1, 1000)


def subtitled_clip(
    path: Path,
    pictures: Sequence[np.ndarray],
    *,
    seconds: float = 2.0,
    rate: int = 2,
    first: float = 0.0,
    subtitles: Sequence[tuple[float, float, str]] = (),
    codec: str = "subrip",
    chapters: Sequence[tuple[float, float, str]] = (),
    tags: dict[str, str] | None = None,
) -> Path:
    """A clip that shows each of the pictures ``[H, W, 3]`` for some seconds; its clock begins at ``first``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=rate)
        video.height, video.width, video.pix_fmt = *pictures[0].shape[:2], "yuv420p"
        text = container.add_stream(codec) if subtitles else None
        if text is not None:
            text.codec_context.subtitle_header = HEADER
        container.metadata.update(tags or {})
        container.set_chapters(
            [
                {
                    "id": number,
                    "start": round(1000 * start),
                    "end": round(1000 * end),
                    "time_base": MILLISECOND,
                    "metadata": {"title": title},
                }
                for number, (start, end, title) in enumerate(chapters)
            ]
        )
        container.start_encoding()
        for number, (start, end, line) in enumerate(subtitles):
            packet = av.Packet(_payload(codec, number, line))
            packet.pts = packet.dts = round(1000 * (first + start))
            packet.duration, packet.time_base, packet.stream = round(1000 * (end - start)), MILLISECOND, text
            container.mux(packet)
        shown = [picture for picture in pictures for _ in range(round(seconds * rate))]
        for number, picture in enumerate(shown):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number + round(first * rate), Fraction(1, rate)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
    return path


def _payload(codec: str, number: int, line: str) -> bytes:
    content = line.encode()
    if codec == "mov_text":
        return len(content).to_bytes(2, "big") + content
    return f"{number},0,Default,,0,0,0,,".encode() + content if codec == "ass" else content


def srt(*cues: tuple[float, float, str]) -> str:
    """The cues as an SRT file."""

    def clock(seconds: float) -> str:
        whole = int(seconds)
        return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02},{round(1000 * (seconds - whole)):03}"

    return "\n".join(f"{n}\n{clock(a)} --> {clock(b)}\n{text}\n" for n, (a, b, text) in enumerate(cues, 1))
