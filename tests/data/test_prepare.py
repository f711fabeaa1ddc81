"""Small copies: right pictures at the right times, whole or not there, and a run can stop anywhere."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from centerclip.data import DataError
from centerclip.data.prepare import prepare
from centerclip.video import probe, read_frames
from centerclip.video.encode import EncodeJob, encode
from tests.data.made_up import clip, text


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def turned(path: Path, *, clockwise: bool) -> Path:
    """Write a quarter turn into the display matrix of an MP4, as phones do."""
    content = bytearray(path.read_bytes())
    matrix = content.index(b"tkhd") + 4 + 40  # version 0: the matrix follows 40 bytes of other fields
    one, zero = (1 << 16).to_bytes(4, "big"), bytes(4)
    minus = (-1 << 16).to_bytes(4, "big", signed=True)
    first, second = (one, minus) if clockwise else (minus, one)
    content[matrix : matrix + 20] = zero + first + zero + second + zero
    path.write_bytes(content)
    return path


def test_a_copy_shows_the_same_at_the_same_time_at_three_frames_a_second(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.avi", seconds=4.0, fps=25, size=(640, 480))
    assert encode(EncodeJob(source, tmp_path / "out.mp4")) == 12
    info = probe(tmp_path / "out.mp4")
    assert (info.codec, info.width, info.height, info.fps) == ("h264", 298, 224, pytest.approx(3.0))
    assert info.duration == pytest.approx(4.0, abs=0.01)
    grey = read_frames(tmp_path / "out.mp4", 12).rgb.mean(axis=(1, 2, 3))
    middle = np.array([20 + 200 * int((k + 0.5) / 3 * 25) // 100 for k in range(12)])
    np.testing.assert_allclose(grey, middle, atol=4.0)


@pytest.mark.parametrize("colour", [(200, 40, 40), (40, 180, 60), (30, 60, 210)])
def test_colours_stay(tmp_path: Path, colour: tuple[int, int, int]) -> None:
    source = clip(tmp_path / "in.mp4", colour=colour, size=(320, 240))
    encode(EncodeJob(source, tmp_path / "out.mp4"))
    before, after = (read_frames(path, 1).rgb.mean(axis=(0, 1, 2)) for path in (source, tmp_path / "out.mp4"))
    np.testing.assert_allclose(after, before, atol=4.0)


@pytest.mark.parametrize("clockwise", [True, False])
def test_turned_videos_stand_upright_without_a_matrix(tmp_path: Path, clockwise: bool) -> None:
    source = turned(clip(tmp_path / "in.mp4", size=(96, 64)), clockwise=clockwise)
    assert probe(source).rotation in (90, 270)
    encode(EncodeJob(source, tmp_path / "out.mp4", short_side=32))
    info = probe(tmp_path / "out.mp4")
    assert (info.width, info.height, info.rotation) == (32, 48, 0)


def test_wide_pixels_become_square_and_small_videos_are_not_enlarged(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", size=(64, 48), aspect=Fraction(2), codec="libx264")
    encode(EncodeJob(source, tmp_path / "out.mp4"))
    info = probe(tmp_path / "out.mp4")
    assert (info.width, info.height, info.pixel_aspect) == (128, 48, 1.0)


def test_a_video_of_one_frame_and_one_slower_than_the_copy_keep_their_length(tmp_path: Path) -> None:
    one = clip(tmp_path / "one.mp4", seconds=0.1, fps=10)
    slow = clip(tmp_path / "slow.mp4", seconds=4, fps=1)
    assert encode(EncodeJob(one, tmp_path / "a.mp4")) == 1
    assert encode(EncodeJob(slow, tmp_path / "b.mp4")) == 12
    assert probe(tmp_path / "b.mp4").duration == pytest.approx(4.0, abs=0.01)


def test_a_folder_is_copied_bad_files_are_named_and_a_second_run_only_does_the_rest(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    clip(source / "a.avi")
    clip(source / "sub/00.01-00.02.171.MKV")
    text(source / "sub/bad.mp4", "this is not a video")
    text(source / "notes.txt", "nor this")
    text(target / "sub/.old.mp4.7.part", "left by a run that was killed")
    shutil.copy(source / "a.avi", source / "a.mov")
    seen: list[tuple[int, int]] = []
    report = prepare(source, target, workers=1, on_progress=lambda finished, total: seen.append((finished, total)))
    assert (report.done, report.skipped) == (2, 0)
    assert set(report.failed) == {"sub/bad.mp4", "a.mov"}
    assert "not a video" in report.failed["sub/bad.mp4"]
    assert "a.avi would also become a.mp4" in report.failed["a.mov"]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    made = {"a.mp4", "sub/00.01-00.02.171.mp4"}
    assert files(target) == made | {"prepare.json", "prepare-report.json"}
    assert report.target_bytes == sum((target / name).stat().st_size for name in made)
    assert json.loads((target / "prepare-report.json").read_text())["failed"] == report.failed

    clip(source / "sub/bad.mp4")
    before = (target / "a.mp4").stat().st_mtime_ns
    again = prepare(source, target, workers=1)
    assert (again.done, again.skipped, set(again.failed)) == (1, 2, {"a.mov"})
    assert (target / "a.mp4").stat().st_mtime_ns == before


def test_a_source_that_changed_is_copied_again(tmp_path: Path) -> None:
    source = clip(tmp_path / "in/a.mp4")
    target = tmp_path / "out/a.mp4"
    encode(EncodeJob(source, target))
    later = target.stat().st_mtime + 10
    os.utime(source, (later, later))
    assert prepare(source.parent, target.parent, workers=1).done == 1


def test_a_copy_that_cannot_be_made_leaves_the_earlier_one_and_no_partial_file(tmp_path: Path) -> None:
    text(tmp_path / "in.mp4", "not a video")
    text(tmp_path / "out/x.mp4", "earlier")
    with pytest.raises(DataError, match="not a video"):
        encode(EncodeJob(tmp_path / "in.mp4", tmp_path / "out/x.mp4"))
    assert files(tmp_path / "out") == {"x.mp4"}
    assert (tmp_path / "out/x.mp4").read_text() == "earlier"


def test_a_folder_keeps_one_setting_one_run_and_never_the_originals(tmp_path: Path) -> None:
    source, target = clip(tmp_path / "in/a.mp4").parent, tmp_path / "out"
    text(target / "prepare.json", '{"fps": 1.0, "short_side": 224}')
    with pytest.raises(DataError, match="other settings"):
        prepare(source, target)
    with (target / "prepare.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="is writing to"):
            prepare(source, target, fps=1.0)
    with pytest.raises(DataError, match="originals"):
        prepare(source, source)
    with pytest.raises(DataError, match="no videos"):
        prepare(tmp_path / "out", tmp_path / "empty")


# Interrupts itself, or is killed, when the first of three videos is done and the second is being written.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from centerclip.data.prepare import prepare

source, target, action = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background

def on_progress(finished, total):
    if finished != 1:
        return
    while not any(Path(target).glob(".*.part*")) and len(list(Path(target).glob("*.mp4"))) == 1:
        time.sleep(0.001)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)  # its worker lives on until its video is done
    os.killpg(0, signal.SIGINT)  # as a terminal does for Ctrl-C: to the worker too

prepare(source, target, fps=25, workers=1, on_progress=on_progress)
"""


def interrupted(source: Path, target: Path, action: str) -> int:
    """The exit code of a run over three videos that is stopped at the second."""
    long = clip(source / "0.mp4", seconds=30, fps=25, size=(160, 120))
    for number in range(1, 3):
        shutil.copy(long, source / f"{number}.mp4")
    command = [sys.executable, "-c", PROGRAM, source, target, action]
    return subprocess.run(command, start_new_session=True, timeout=240).returncode


def test_ctrl_c_leaves_only_whole_files(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert interrupted(tmp_path / "in", target, "interrupt") not in (0, -signal.SIGKILL)
    left = files(target)
    assert not {name for name in left if ".part" in name}
    assert 1 <= len({name for name in left if name.endswith(".mp4")}) < 3
    for name in left - {"prepare.json"}:
        assert probe(target / name).duration == pytest.approx(30, abs=1)


def test_a_run_after_one_that_was_killed_makes_everything_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert interrupted(tmp_path / "in", target, "kill") == -signal.SIGKILL
    prepare(tmp_path / "in", target, fps=25, workers=1)
    assert files(target) == {"0.mp4", "1.mp4", "2.mp4", "prepare.json", "prepare-report.json"}
    for number in range(3):
        assert probe(target / f"{number}.mp4").duration == pytest.approx(30, abs=1)
