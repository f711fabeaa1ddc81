"""Text that has to be recognised first: speech in the sound (``--transcribe``), words in the picture (``--read-text``).

Both are extras, off unless they are asked for: they can take as long as the rest of indexing, or longer. A recogniser
turns a video into lines; another package than those used here can take its place. A video remembers which of them were
run on it, so that a run that was stopped continues with the next video.
"""

from collections.abc import Callable, Iterable, Sequence
from os import fspath
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import SearchError, extras_named, first_line
from ..video.subtitles import Line, TextSource, plain
from .store import Floats, Segments, Video
from .text import index_text

READ_SIDE = 720  # pixels of the short side of a frame that text is read from: a subtitle is then 30 high
SAME_DIFFERENCE, SAME_SHARE = 40, 5e-4  # of brightness, and of the pixels: less is the same picture, still compressed
# Text is looked for in a copy whose long side has so many pixels, and read from the frame itself: a quarter of the work
# of what the package does by itself, and nothing is lost down to letters of 15 pixels.
FIND_SIDE = 736
MIN_LETTERS = 2  # of a piece of text in a picture; single ones are mostly noise
MIN_SCORE = 0.6  # of the recogniser, 0 to 1

Picture = NDArray[np.uint8]


class Recogniser(Protocol):
    """Finds lines in a video. Raises VideoError when the file cannot be read."""

    source: TextSource

    def __call__(self, path: str, video: Video, segments: Segments) -> list[Line]:
        """The lines of a video, in the order of time."""
        ...


class Speech:
    """What is said in the sound of a video.

    Args:
        transcribe: from samples ``[N]``, 16,000 a second, to start and end in seconds and text of what is said.
    """

    source: TextSource = "spoken"

    def __init__(self, transcribe: Callable[[Floats], Iterable[tuple[float, float, str]]]) -> None:
        self.transcribe = transcribe

    def __call__(self, path: str, video: Video, segments: Segments) -> list[Line]:
        """Decode the sound part by part and transcribe each."""
        from ..video.sound import stream_sound

        lines = []
        for begin, samples in stream_sound(path):
            for start, end, text in self.transcribe(samples):
                start, end = max(0.0, begin + start), min(begin + end, video.duration)
                if start <= end and (said := plain(text)):
                    lines.append(Line(start, end, said, self.source))
        return lines


class PictureText:
    """What is written in the pictures of a video: signs, slides, subtitles that are part of the picture.

    One frame of each segment is read, and only when it differs from the one before. Text that stays is one line.

    Args:
        read: from a picture, uint8 ``[H, W, 3]`` RGB, to pieces of text with a score each, 0 to 1.
    """

    source: TextSource = "written"

    def __init__(self, read: Callable[[Picture], Sequence[tuple[str, float]]]) -> None:
        self.read = read

    def __call__(self, path: str, video: Video, segments: Segments) -> list[Line]:
        """Read the frame in the middle of each segment."""
        from ..video import Window, stream_windows

        pieces: dict[int, list[str]] = {}
        last: Picture | None = None

        def keep(window: Window) -> None:
            nonlocal last
            picture = np.asarray(window.rgb)[0]
            if window.number and last is not None and _is_same(last, picture):
                pieces[window.number] = pieces[window.number - 1]
                return
            last = picture
            found = [(plain(text), score) for text, score in self.read(picture)]
            pieces[window.number] = [
                text for text, score in found if score >= MIN_SCORE and len(index_text(text)) >= MIN_LETTERS
            ]

        middles = ((segments.starts + segments.ends) / 2).tolist()
        short_side = min(READ_SIDE, video.width, video.height)
        stream_windows(path, lambda duration, frames: middles, 1, keep, short_side=short_side)
        return _merged([pieces[number] for number in sorted(pieces)], segments, self.source)


def _is_same(first: Picture, second: Picture) -> bool:
    small = [picture[::2, ::2].mean(axis=2) for picture in (first, second)]
    return float((np.abs(small[0] - small[1]) > SAME_DIFFERENCE).mean()) < SAME_SHARE


def _merged(pieces: Sequence[Sequence[str]], segments: Segments, source: TextSource) -> list[Line]:
    """One line for a text that is there in several segments after another."""
    lines: list[Line] = []
    open_lines: dict[str, int] = {}  # place in ``lines`` of what the segment before has, by its words
    for number, texts in enumerate(pieces):
        start, end = float(segments.starts[number]), float(segments.ends[number])
        still: dict[str, int] = {}
        for text in texts:
            words = index_text(text)
            if words in open_lines:
                place = open_lines[words]
                lines[place] = Line(lines[place].start, end, lines[place].text, source)
                still[words] = place
            elif words not in still:
                still[words] = len(lines)
                lines.append(Line(start, end, text, source))
        open_lines = still
    return lines


def open_speech(model: str | Path, device: str | None = None) -> Speech:
    """A recogniser of speech with faster-whisper: a folder with a model, or a name such as ``"small"`` (downloaded)."""
    with extras_named():
        from faster_whisper import WhisperModel
    try:
        place = device if device in ("cpu", "cuda") else "auto"
        whisper = WhisperModel(fspath(model), device=place, compute_type="auto")
    except Exception as error:  # whatever the package and the hub raise
        raise SearchError(
            f"the speech model {str(model)!r} cannot be opened ({first_line(error)}). Name a folder that holds one, or "
            "a size such as tiny, base, small, which is downloaded once"
        ) from error

    def transcribe(samples: Floats) -> Iterable[tuple[float, float, str]]:
        lines, _ = whisper.transcribe(samples, vad_filter=True)  # silence makes such models invent sentences
        return ((line.start, line.end, line.text) for line in lines)

    return Speech(transcribe)


def open_picture_text() -> PictureText:
    """A recogniser of text in pictures with RapidOCR, whose models come with it."""
    with extras_named():
        from rapidocr import RapidOCR
    engine: Callable[[Picture], Any] = RapidOCR(
        params={"Global.log_level": "critical", "Det.limit_type": "max", "Det.limit_side_len": FIND_SIDE}
    )

    def read(picture: Picture) -> list[tuple[str, float]]:
        result = engine(np.ascontiguousarray(picture[..., ::-1]))  # BGR
        return list(zip(result.txts or (), map(float, result.scores or ()), strict=True))

    return PictureText(read)
