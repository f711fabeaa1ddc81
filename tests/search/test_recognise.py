"""Text that is recognised: speech by a stand-in, words in the picture by the real package on generated slides."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from centerclip.errors import MissingExtra
from centerclip.search.recognise import PictureText, Speech, open_picture_text, open_speech
from centerclip.search.store import Segments, Video
from centerclip.video.subtitles import Line
from tests.video.clips import make_clip
from tests.video.subtitled import subtitled_clip
from tests.video.test_sound import talking_clip


def slide(*lines: str, size: tuple[int, int] = (480, 270)) -> np.ndarray:
    """``[H, W, 3]``, black on white."""
    image = Image.new("RGB", size, "white")
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((20, 20 + 60 * number), line, fill="black", font=ImageFont.load_default(32))
    return np.array(image)


def cut(count: int, seconds: float = 2.0) -> Segments:
    starts = np.arange(count, dtype=np.float32) * seconds
    return Segments(starts, starts + seconds, np.zeros((count, 4), np.float32))


def video(duration: float, width: int = 480, height: int = 270) -> Video:
    return Video("id", duration, width, height, 0.0)


def test_slides_are_read_with_their_times(tmp_path: Path) -> None:
    clip = subtitled_clip(
        tmp_path / "talk.mp4",
        [slide("Quarterly figures 2024"), slide("Quarterly figures 2024", "Build more bridges"), slide("Thank you")],
        seconds=2.0,
    )
    lines = open_picture_text()(str(clip), video(6.0), cut(3))
    assert lines == [
        Line(0.0, 4.0, "Quarterly figures 2024", "written"),
        Line(2.0, 4.0, "Build more bridges", "written"),
        Line(4.0, 6.0, "Thank you", "written"),
    ]


def test_a_picture_that_stays_is_read_once(tmp_path: Path) -> None:
    clip = subtitled_clip(tmp_path / "talk.mp4", [slide("One")] * 3 + [slide("Two")] * 2, seconds=2.0)
    read: list[tuple[int, ...]] = []

    def reader(picture: np.ndarray) -> list[tuple[str, float]]:
        read.append(picture.shape)
        return [(["One", "Two"][len(read) - 1], 0.9), ("blurred", 0.3), ("?", 0.9)]

    lines = PictureText(reader)(str(clip), video(10.0), cut(5))
    assert lines == [Line(0.0, 6.0, "One", "written"), Line(6.0, 10.0, "Two", "written")]
    assert read == [(270, 480, 3)] * 2


def test_large_frames_are_read_smaller(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "large.mp4", frames=2, rate=1, picture=np.zeros((960, 1280, 3), np.uint8))
    shapes: list[tuple[int, ...]] = []
    PictureText(lambda picture: shapes.append(picture.shape) or [])(str(clip), video(2.0, 1280, 960), cut(1))
    assert shapes == [(720, 960, 3)]


def test_speech_has_the_times_of_the_video(tmp_path: Path) -> None:
    heard: list[int] = []

    def stand_in(samples: np.ndarray) -> list[tuple[float, float, str]]:
        heard.append(len(samples))
        loud = np.flatnonzero(np.abs(samples) > 0.2) / 16_000
        return [(float(loud.min()), float(loud.max()), " a\n beep "), (1.0, 1.5, "   "), (50.0, 60.0, "after the end")]

    lines = Speech(stand_in)(str(talking_clip(tmp_path / "a.mp4")), video(6.0), cut(3))
    (line,) = lines
    assert (line.text, line.source) == ("a beep", "spoken")
    assert (line.start, line.end) == pytest.approx((2.0, 4.0), abs=0.1)
    assert len(heard) == 1


def test_a_clip_without_sound_has_no_speech(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=5)
    assert Speech(lambda samples: [(0.0, 1.0, "never")])(str(clip), video(1.0), cut(1)) == []


@pytest.mark.parametrize(("package", "extra"), [("faster_whisper", "speech"), ("rapidocr", "ocr")])
def test_a_missing_package_says_what_to_type(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    importing = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(name=name)
        return importing(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=rf"pip install 'centerclip\[{extra}\]'"):
        open_speech("tiny") if extra == "speech" else open_picture_text()
