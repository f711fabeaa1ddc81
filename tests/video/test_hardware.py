"""Decoding on a device: which one is tried, and that the processor takes over where it fails."""

from pathlib import Path

import numpy as np
import pytest

from centerclip.video import Window, container, reader, stream_windows
from centerclip.video.container import DEFAULT_LIMITS, open_source
from centerclip.video.decode import SeekMismatch
from centerclip.video.errors import UnreadableVideo
from tests.video.clips import make_clip, numbers_of


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return make_clip(tmp_path / "a.mp4", frames=48, g=12)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two kinds of devices, of which the machine has the second; what was tried."""
    tried: list[str] = []
    open_plainly = container._open

    def open_on(name, limits, deadline, hwaccel=None):
        if hwaccel is not None:
            tried.append(hwaccel)
            if hwaccel == "broken":
                raise UnreadableVideo(name, "no such device")
        return open_plainly(name, limits, deadline)

    monkeypatch.setattr(container, "_MISSING_DEVICES", set())
    monkeypatch.setattr(container, "hwdevices_available", lambda: ["broken", "works"])
    monkeypatch.setattr(container, "HWAccel", lambda device, allow_software_fallback: device)
    monkeypatch.setattr(container, "_open", open_on)
    monkeypatch.setattr(container, "uses_hardware", lambda opened: True)
    return tried


def read(clip: Path, hwaccel: str) -> list[int]:
    windows: list[Window] = []
    found = stream_windows(clip, lambda duration, frames: [0.1, 0.5, 1.0, 1.5], 2, windows.append, hwaccel=hwaccel)
    assert found.note is None
    return numbers_of(np.concatenate([window.rgb for window in windows]))


def test_auto_takes_the_first_device_that_works_and_asks_a_missing_one_once(clip: Path, devices: list[str]) -> None:
    for _ in range(2):
        with open_source(clip, DEFAULT_LIMITS, hwaccel="auto") as source:
            assert source.hardware == "works"
    assert devices == ["broken", "works", "works"]
    with open_source(clip, DEFAULT_LIMITS) as source:
        assert source.hardware == ""
    assert container.devices_for("broken") == []
    with pytest.raises(ValueError, match="choose auto, none, broken, works"):
        container.devices_for("gpu")


def test_a_device_that_is_missing_leaves_it_to_the_processor(clip: Path, devices: list[str]) -> None:
    with open_source(clip, DEFAULT_LIMITS, hwaccel="broken") as source:
        assert source.hardware == ""
    assert read(clip, "broken") == read(clip, "none") == [3, 15, 30, 45]


def test_a_device_that_gives_other_frames_leaves_it_to_the_processor(
    clip: Path, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(clip, "works") == [3, 15, 30, 45]
    original, calls = reader.seek_frames, []

    def seek(source, table, chosen, keep):
        if source.hardware and chosen != [0]:
            calls.append(chosen)
            raise SeekMismatch("frames came out of order")
        return original(source, table, chosen, keep)

    monkeypatch.setattr(reader, "seek_frames", seek)
    assert read(clip, "works") == [3, 15, 30, 45]
    assert calls


def test_a_device_whose_pixels_differ_is_not_used(
    clip: Path, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = reader.FrameConverter.__call__
    seen: list[str] = []

    def spoil(self, frame):
        seen.append("device" if self.short_side == reader.DEVICE_CHECK_SIDE else "frames")
        return convert(self, frame) // (2 if len(seen) == 1 else 1)

    monkeypatch.setattr(reader.FrameConverter, "__call__", spoil)
    assert read(clip, "works") == [3, 15, 30, 45]
    assert seen == ["device", "device", "frames", "frames", "frames", "frames"]


def test_devices_of_this_machine_give_the_frames_of_the_processor(clip: Path) -> None:
    """Where there is none, that is the processor itself."""
    assert read(clip, "auto") == read(clip, "none")
