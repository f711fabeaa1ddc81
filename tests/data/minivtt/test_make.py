"""Making the data set: readable files, resumable, the same for the same seed, and clear about folders of others."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from centerclip.cli.data import app
from centerclip.data import DataError, load
from centerclip.data.minivtt import make, read_events
from centerclip.data.minivtt.generate import choose_things, split_counts
from centerclip.video import probe, read_frames


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minivtt") / "clips"
    report = make(folder, clips=20, workers=1, things="shapes")
    assert (report.made, report.skipped, report.failed) == (20, 0, {})
    return folder


def test_the_folder_format_reads_it_and_its_events(made: Path) -> None:
    events = read_events(made)
    for split, count in (("train", 14), ("val", 1), ("test", 5)):
        benchmark = load("folder", made, split)
        assert (len(benchmark), len(benchmark.captions)) == (count, 5 * count)
        for clip in benchmark.videos:
            told = events[clip.id]
            assert told.split == split
            assert told.events[0].start == 0
            assert [e.end for e in told.events[:-1]] == [e.start for e in told.events[1:]]
            assert told.events[-1].end == told.duration
            assert probe(clip.path).duration == pytest.approx(told.duration, abs=0.01)
    assert json.loads((made / "minivtt.json").read_text())["things"] == "shapes"


def test_clips_are_small(made: Path) -> None:
    sizes = [path.stat().st_size for path in (made / "videos").iterdir()]
    assert sum(sizes) / len(sizes) < 40_000


def whole_blocks(path: Path) -> bool:
    info = probe(path)
    return info.width % 16 == 0 and info.height % 16 == 0


def test_a_stopped_run_is_resumed_and_makes_the_same_bytes(made: Path) -> None:
    # x264 reads beyond frames whose sides are not multiples of 16, so a few bytes of those depend on what was there.
    gone = next(path for path in sorted((made / "videos").iterdir()) if whole_blocks(path))
    content, captions = gone.read_bytes(), (made / "captions.csv").read_text()
    gone.unlink()
    (made / "captions.csv").unlink()
    (gone.parent / f".{gone.name}.123.part").touch()  # what a killed run leaves
    report = make(made, clips=20, workers=1, things="shapes")
    assert (report.made, report.skipped) == (1, 19)
    assert gone.read_bytes() == content
    assert (made / "captions.csv").read_text() == captions
    assert not list(gone.parent.glob(".*"))


def test_another_setting_needs_another_folder(made: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"was made with seed 0, not 1\. Choose another folder, or .* --force"):
        make(made, clips=20, seed=1, things="shapes")
    with pytest.raises(DataError, match="was made with what videos, not images"):
        make(made, images=True, clips=20, things="shapes")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match=r"mine\.txt is a file; name a folder"):
        make(tmp_path / "mine.txt", clips=20, things="shapes")
    for force in (False, True):
        with pytest.raises(DataError, match="has other files"):
            make(tmp_path, clips=20, things="shapes", force=force)


def test_counts_of_the_splits() -> None:
    assert split_counts(2000) == {"train": 1400, "val": 100, "test": 500}
    assert split_counts(4600) == {"train": 4000, "val": 100, "test": 500}
    assert split_counts(60) == {"train": 42, "val": 3, "test": 15}
    with pytest.raises(DataError, match="at least 20 clips"):
        split_counts(19)


def test_images_are_read_like_videos_and_force_removes_only_what_was_made(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    result = CliRunner().invoke(
        app,
        ["make", "minivtt-images", str(folder), "--clips", "40", "--workers", "1", "--things", "shapes", "--json"],
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["clips"] == {"train": 38, "val": 2}
    benchmark = load("folder", folder, "train+val")
    assert (len(benchmark), len(benchmark.captions)) == (40, 120)
    frames = read_frames(benchmark.videos[0].path, 1, short_side=112)
    assert frames.rgb.shape[0] == 1
    assert min(frames.rgb.shape[1:3]) == 112
    (folder / "notes.txt").write_text("mine")
    report = make(folder, images=True, clips=20, seed=1, workers=1, things="shapes", force=True)
    assert report.made == 20
    assert len(load("folder", folder, "train+val")) == 20
    assert (folder / "notes.txt").exists()
    make(folder, images=True, clips=21, seed=1, workers=1, things="shapes")
    with pytest.raises(DataError, match="was made for 21 clips"):
        make(folder, images=True, clips=20, seed=1, things="shapes")


def test_without_a_font_shapes_are_drawn_and_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("centerclip.data.minivtt.generate.find_font", lambda: None)
    kind, font, note = choose_things(None, None)
    assert (kind, font) == ("shapes", None)
    assert note is not None
    assert "fonts-noto-color-emoji" in note
    with pytest.raises(DataError, match="is not on this computer"):
        choose_things("emoji", None)
    with pytest.raises(DataError, match="is not a font file"):
        choose_things(None, tmp_path / "none.ttf")


def test_wrong_usage_is_2(tmp_path: Path) -> None:
    for wrong in (["minivtt"], ["minivtt", str(tmp_path), "--clips", "3"], ["minivtt", str(tmp_path), "--things", "x"]):
        assert CliRunner().invoke(app, ["make", *wrong]).exit_code == 2


def test_events_that_are_not_there_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"generate it with: centerclip data make minivtt"):
        read_events(tmp_path)
