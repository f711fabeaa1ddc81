"""Verification counts what is there, compares it with the papers, and names what is not as it should be."""

from pathlib import Path

import pytest

from centerclip.data import AnnotationError, load
from centerclip.data.benchmark import FORMATS, SplitCheck, verify
from centerclip.data.formats import Published
from tests.data import made_up


@pytest.fixture
def msrvtt(tmp_path: Path) -> Path:
    made_up.msrvtt(tmp_path / "annotations")
    for number in range(4):
        made_up.text(tmp_path / f"videos/video{number}.mp4", "")
    return tmp_path


def test_splits_are_counted_one_by_one_and_together_as_they_are_published(msrvtt: Path) -> None:
    result = verify("msrvtt", msrvtt, quick=True)
    assert [(check.split, check.videos, check.captions, check.found) for check in result.splits] == [
        ("train", 3, 6, 3),
        ("val", 1, 2, 1),
        ("test", 2, 2, 0),
        ("train+val", 4, 8, 4),
    ]
    assert result.missing == ["video5", "video4"]
    assert "train+val has 4 videos, 8,996 fewer than the 9,000 published" in result.differences
    assert "test has 2 captions, 998 fewer than the 1,000 published" in result.differences
    assert (result.opened, result.unreadable) == (0, {})


def test_fingerprints_are_those_that_loading_gives(msrvtt: Path) -> None:
    result = verify("msrvtt", msrvtt, quick=True)
    for check in result.splits:
        if check.found == check.videos:
            assert check.fingerprint == load("msrvtt", msrvtt, check.split).fingerprint


def test_splits_without_annotations_are_told_unless_they_were_asked_for(tmp_path: Path) -> None:
    made_up.lsmdc(tmp_path)
    result = verify("lsmdc", tmp_path, quick=True)
    assert [check.split for check in result.splits] == ["test"]
    assert set(result.absent) == {"train", "val"}
    with pytest.raises(AnnotationError, match=r"LSMDC16_annos_val\.csv"):
        verify("lsmdc", tmp_path, split="val", quick=True)
    with pytest.raises(AnnotationError, match="no annotation files of msvd found"):
        verify("msvd", tmp_path, quick=True)


def test_videos_without_a_caption_are_named(tmp_path: Path) -> None:
    rows = [("video", "caption", "split"), ("a", "a hill", "test"), ("b", " ", "test"), ("c", "a tree", "train")]
    made_up.text(tmp_path / "captions.csv", made_up.table(rows))
    result = verify("folder", tmp_path, quick=True)
    assert [(check.split, check.videos) for check in result.splits] == [("train", 1), ("test", 1)]
    assert result.uncaptioned == ["b"]


def test_malformed_annotations_are_never_taken_for_absent_ones(msrvtt: Path) -> None:
    made_up.text(msrvtt / "annotations/MSRVTT_train.9k.csv", "wrong\nvideo0\n")
    with pytest.raises(AnnotationError, match="no column video_id"):
        verify("msrvtt", msrvtt, quick=True)


@pytest.mark.parametrize("here", [1_000, 1_003, 990])
def test_differences_say_by_how_much(here: int) -> None:
    check = SplitCheck("test", here, 5, Published(1_000), found=0, missing=(), fingerprint="")
    said = {
        1_000: [],
        1_003: ["test has 1,003 videos, 3 more than the 1,000 published"],
        990: ["test has 990 videos, 10 fewer than the 1,000 published"],
    }
    assert check.differences == said[here]


@pytest.mark.parametrize(("videos", "published"), [(4_917, 4_917), (4_869, 4_869), (4_900, 4_917)])
def test_either_list_of_activitynet_is_as_published(videos: int, published: int) -> None:
    figures = FORMATS["activitynet"].published["test"].for_count(videos)
    assert (figures.videos, figures.captions) == (published, published)
    check = SplitCheck("test", videos, videos, figures, found=0, missing=(), fingerprint="")
    assert bool(check.differences) == (videos != published)


def test_published_figures() -> None:
    videos = {
        name: {split: figure.videos for split, figure in form.published.items()} for name, form in FORMATS.items()
    }
    assert videos == {
        "msrvtt": {"train+val": 9_000, "test": 1_000},
        "msrvtt-7k": {"train+val": 7_010, "test": 1_000},
        "msvd": {"train": 1_200, "val": 100, "test": 670},
        "lsmdc": {"train": 101_079, "val": 7_408, "test": 1_000},
        "activitynet": {"train+val": 10_009, "test": 4_917},
        "didemo": {"train": 8_395, "val": 1_065, "test": 1_004},
        "folder": {},
    }
    assert FORMATS["msvd"].published["test"].captions == 27_763
