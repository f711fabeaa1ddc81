"""Loading gives every caption its video file, says which are missing, and never leaves the folder."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from centerclip.data import AnnotationError, Benchmark, Clip, DataError, MissingVideosError, load, read_captions
from centerclip.data.benchmark import VideoFiles
from centerclip.data.formats import Protocol, without_extension
from centerclip.errors import AbsentError
from tests.data import made_up


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        made_up.text(folder / name, "")
    return folder


def test_videos_are_found_by_id_in_sub_folders_with_any_extension(tmp_path: Path) -> None:
    made_up.lsmdc(tmp_path / "annotations")
    first, second = made_up.LSMDC_CLIPS
    touch(tmp_path, f"films/0001_Film/{first}.AVI", f"{second}.mkv", "films/other.mp4", f".{first}.mp4")
    benchmark = load("lsmdc", tmp_path)
    assert [clip.id for clip in benchmark.videos] == [first, second]
    assert [clip.path.name for clip in benchmark.videos] == [f"{first}.AVI", f"{second}.mkv"]
    assert (benchmark.split, len(benchmark), benchmark.missing) == ("test", 2, ())


def test_missing_videos_are_an_error_that_names_and_counts_them(tmp_path: Path) -> None:
    made_up.activitynet(tmp_path, test=[f"v_{n}" for n in range(9)])
    touch(tmp_path, "v_3.mp4")
    with pytest.raises(MissingVideosError, match=r"8 of 9 videos .* v_0, v_1, v_2, v_4, v_5 and 3 more") as caught:
        load("activitynet", tmp_path)
    assert len(caught.value.missing) == 8


def test_allowed_to_miss_the_gallery_is_what_is_there(tmp_path: Path) -> None:
    made_up.activitynet(tmp_path, test=["v_0", "v_1", "v_2"])
    touch(tmp_path, "v_0.mp4", "v_2.webm")
    benchmark = load("activitynet", tmp_path, allow_missing=True)
    assert len(benchmark) == 2
    assert benchmark.missing == ("v_1",)
    assert "2 videos, 2 captions, 1 missing" in str(benchmark)


def test_videos_whose_captions_are_blank_are_counted_and_named(tmp_path: Path) -> None:
    rows = ["a,a hill,test", "b,  ,test", "c,a tree,test", "c,,test", "d,,test", "e,,train"]
    (tmp_path / "captions.csv").write_text("\n".join(["video,caption,split", *rows]))
    touch(tmp_path, "a.mp4", "c.mp4")
    benchmark = load("folder", tmp_path, "test")
    assert [clip.id for clip in benchmark.videos] == ["a", "c"]
    assert benchmark.captions == ("a hill", "a tree")
    assert (benchmark.missing, benchmark.uncaptioned) == ((), ("b", "d"))
    assert "2 videos, 2 captions, 2 left out without a caption (b, d)" in str(benchmark)
    assert list(read_captions("folder", tmp_path, "test")) == ["a", "c"]
    with pytest.raises(AbsentError, match="no videos in the split train: the captions of e are blank"):
        load("folder", tmp_path, "train")


def test_nothing_found_is_an_error_even_when_videos_may_be_missing(tmp_path: Path) -> None:
    made_up.activitynet(tmp_path)
    with pytest.raises(MissingVideosError):
        load("activitynet", tmp_path, allow_missing=True)
    with pytest.raises(DataError, match="not a folder"):
        load("activitynet", tmp_path / "none", annotations=tmp_path)


@pytest.mark.parametrize("video", ["../secret.mp4", "/etc/passwd", "a/../../secret", "..\\secret.mp4"])
def test_ids_that_leave_the_folder_are_refused_even_if_a_file_is_there(tmp_path: Path, video: str) -> None:
    root = touch(tmp_path / "root", "ok.mp4")
    touch(tmp_path, "secret.mp4")
    made_up.text(root / "captions.csv", made_up.table([("video", "caption", "split"), (video, "x", "test")]))
    with pytest.raises(AnnotationError, match="points outside"):
        load("folder", root)


@given(st.text(max_size=40))
def test_no_id_ever_gives_a_path_that_the_walk_did_not_find(video: str) -> None:
    found = Path("root/ok.mp4")
    files = VideoFiles(Path("root"), {"ok": found})
    with contextlib.suppress(AnnotationError):
        assert files.find(video) in (None, found)


def test_folder_ids_may_be_relative_paths_and_the_outermost_file_of_a_name_counts(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.mp4", "b/x.mp4", "x.mov", "a/y.mp4")
    files = VideoFiles.under(tmp_path)
    assert files.find("b/x.mp4") == files.find("./b/x") == tmp_path / "b/x.mp4"
    assert files.find("x") == tmp_path / "x.mov"
    assert files.find("y.mp4") == tmp_path / "a/y.mp4"
    assert files.find("z") is None


def test_a_copy_with_another_extension_is_found_but_never_for_two_videos(tmp_path: Path) -> None:
    touch(tmp_path, "sub/dog.mp4")
    rows = [("video", "caption", "split"), ("sub/dog.mov", "x", "test")]
    made_up.text(tmp_path / "captions.csv", made_up.table(rows))
    assert load("folder", tmp_path).videos[0].path == tmp_path / "sub/dog.mp4"
    made_up.text(tmp_path / "captions.csv", made_up.table([*rows, ("sub/dog.avi", "y", "test")]))
    with pytest.raises(AnnotationError, match=r"dog\.mov and sub/dog\.avi both match"):
        load("folder", tmp_path)


def test_linked_folders_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    disk = touch(tmp_path / "disk", "far.mp4")
    root = touch(tmp_path / "root", "near.mp4")
    (root / "link").symlink_to(disk)
    (root / "loop").symlink_to(root)
    files = VideoFiles.under(root)
    assert files.find("far") == root / "link/far.mp4"
    assert set(files.paths.values()) == {root / "near.mp4", root / "link/far.mp4"}


@given(st.text(alphabet="ab._-0", min_size=1))
def test_only_video_extensions_are_taken_off(name: str) -> None:
    assert without_extension(name) == name
    assert without_extension(f"{name}.Mp4") == name


def make(*videos: tuple[str, tuple[str, ...]], folder: str = "x") -> Benchmark:
    return Benchmark("b", "test", tuple(Clip(video, Path(folder, video), captions) for video, captions in videos))


def test_fingerprint_names_ids_and_captions_and_nothing_else() -> None:
    one, two = ("a", ("x", "y")), ("b", ("z",))
    reference = make(one, two).fingerprint
    assert reference == "ea0890f63416"  # a known value: the same on every machine and Python
    assert reference == make(two, one, folder="other").fingerprint
    changed = [
        make(one),
        make(one, ("b", ("z!",))),
        make(("a", ("y", "x")), two),
        make(("a", ("x",)), ("b", ("y", "z"))),
    ]
    assert len({reference, *(each.fingerprint for each in changed)}) == 5


@pytest.mark.parametrize(("protocol", "end"), [("published", 31.0), ("clean", None)])
def test_the_authors_use_the_first_31_seconds_of_didemo(tmp_path: Path, protocol: Protocol, end: float | None) -> None:
    made_up.text(tmp_path / "test_data.json", '[{"video": "1@N01_2_3a.mov", "description": "a cat sits."}]')
    touch(tmp_path, "1@N01_2_3a.mov")
    assert [clip.end for clip in load("didemo", tmp_path, protocol=protocol).videos] == [end]
    made_up.lsmdc(tmp_path)
    touch(tmp_path, *(f"{name}.avi" for name in made_up.LSMDC_CLIPS))
    assert {clip.end for clip in load("lsmdc", tmp_path, protocol=protocol).videos} == {None}


def test_captions_know_their_video() -> None:
    benchmark = make(("a", ("x", "y")), ("b", ("z",)))
    assert benchmark.captions == ("x", "y", "z")
    assert benchmark.video_of_caption == (0, 0, 1)
