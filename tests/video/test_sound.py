"""Sound as samples: the right pitch at the right time, in parts that are put together again without a loss."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from centerclip.video import MissingFile
from centerclip.video.sound import SAMPLE_RATE, stream_sound
from tests.video.clips import make_clip

RATE = 44_100


def talking_clip(
    path: Path, *, seconds: float = 6.0, tone: tuple[float, float] = (2.0, 4.0), layout: str = "stereo"
) -> Path:
    """A clip with sound: a tone of 1000 Hz for a part of it, silence else."""
    times = np.arange(round(seconds * RATE)) / RATE
    wave = np.sin(2000 * np.pi * times) * 0.5 * ((times >= tone[0]) & (times < tone[1]))
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=2)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        sound = container.add_stream("aac", rate=RATE, layout=layout)
        channels = sound.layout.nb_channels
        for _ in range(round(seconds * 2)):
            container.mux(video.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8))))
        for at in range(0, len(wave), 1024):
            part = np.repeat(wave[None, at : at + 1024], channels, axis=0).astype(np.float32)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(part), format="fltp", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = RATE, at, Fraction(1, RATE)
            container.mux(sound.encode(frame))
        container.mux([*video.encode(None), *sound.encode(None)])
    return path


def test_the_tone_is_where_it_was_put(tmp_path: Path) -> None:
    ((begin, samples),) = stream_sound(talking_clip(tmp_path / "a.mp4"))
    assert begin == pytest.approx(0.0, abs=0.05)
    assert len(samples) / SAMPLE_RATE == pytest.approx(6.0, abs=0.1)
    loud = np.flatnonzero(np.abs(samples) > 0.2) / SAMPLE_RATE + begin
    assert loud.min() == pytest.approx(2.0, abs=0.05)
    assert loud.max() == pytest.approx(4.0, abs=0.05)
    middle = samples[int(2.5 * SAMPLE_RATE) : int(3.5 * SAMPLE_RATE)]
    assert np.abs(np.fft.rfft(middle)).argmax() == 1000


def test_parts_are_short_and_follow_each_other(tmp_path: Path) -> None:
    clip = talking_clip(tmp_path / "a.mp4")
    ((_, whole),) = stream_sound(clip)
    parts = list(stream_sound(clip, seconds=2.0))
    assert len(parts) > 2
    assert all(len(samples) <= 2.2 * SAMPLE_RATE for _, samples in parts)
    np.testing.assert_array_equal(np.concatenate([samples for _, samples in parts]), whole)
    for (begin, samples), (following, _) in pairwise(parts):
        assert following == pytest.approx(begin + len(samples) / SAMPLE_RATE, abs=0.05)


def test_channels_may_change_as_they_do_between_programmes(tmp_path: Path) -> None:
    stereo = talking_clip(tmp_path / "a.ts", seconds=3.0, tone=(1.0, 2.0))
    surround = talking_clip(tmp_path / "b.ts", seconds=3.0, tone=(1.0, 2.0), layout="5.1")
    joined = tmp_path / "joined.ts"
    joined.write_bytes(stereo.read_bytes() + surround.read_bytes())
    samples = np.concatenate([part for _, part in stream_sound(joined)])
    loud = np.abs(samples) > 0.2
    assert loud[: len(loud) // 2].any()
    assert loud[len(loud) // 2 :].any()


def test_a_clip_without_sound_gives_nothing(tmp_path: Path) -> None:
    assert list(stream_sound(make_clip(tmp_path / "a.mp4", frames=5))) == []
    with pytest.raises(MissingFile):
        list(stream_sound(tmp_path / "missing.mp4"))
