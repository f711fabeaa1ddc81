"""A second run does only what is new or changed; what moved is followed, what is gone is dropped."""

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from centerclip import VideoIndex
from centerclip.errors import SettingError
from centerclip.files import content_id, find_videos
from centerclip.model.precision import processor
from centerclip.model.preprocess import Preprocess
from centerclip.search import (
    DamagedIndex,
    IndexBusy,
    IndexNotFound,
    IndexReport,
    OtherSettings,
    Progress,
    SearchError,
    UnknownVideo,
)
from centerclip.search.folder import is_busy, writer_lock
from centerclip.search.indexer import Indexer, _stamped
from centerclip.search.query import Encoder, settings_of
from tests.search.collection import clip, open_tiny, picture, save_model, scenes, titles


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    for number, name in enumerate(["a.mp4", "b.mkv", "deep/c.avi"]):
        clip(folder / name, number)
    return folder


@pytest.fixture
def index(tmp_path: Path, videos: Path) -> VideoIndex:
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    report = index.add(videos)
    assert (report.added, report.failed) == (3, {})
    return index


def test_a_second_run_encodes_nothing(index: VideoIndex, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Indexer, "run", None)  # it is not even started
    report = index.add(videos)
    assert (report.added, report.recognised, report.unchanged, report.removed) == (0, 0, 3, 0)
    assert index.add().unchanged == 3  # without paths: what was indexed before


def test_new_and_changed_files_are_encoded(index: VideoIndex, videos: Path) -> None:
    before = {entry.title: entry.video_id for entry in index.videos()}
    clip(videos / "new.mp4", 7)
    clip(videos / "a.mp4", 8, seconds=3)
    report = index.add(videos)
    assert (report.added, report.unchanged) == (2, 2)
    after = {entry.title: entry for entry in index.videos()}
    assert sorted(after) == ["a", "b", "c", "new"]
    assert after["a"].video_id != before["a"]
    assert after["a"].duration == pytest.approx(3)
    assert before["a"] not in {entry.video_id for entry in index.videos()}


def test_moves_renames_and_touches_are_followed_without_encoding(index: VideoIndex, videos: Path) -> None:
    before = {entry.title: entry.video_id for entry in index.videos()}
    (videos / "a.mp4").rename(videos / "deep" / "renamed.mp4")
    os.utime(videos / "b.mkv", (1, 1))
    report = index.add(videos)
    assert (report.added, report.recognised, report.unchanged, report.removed) == (0, 2, 1, 0)  # nothing is gone
    after = {entry.title: entry.video_id for entry in index.videos()}
    assert after == {"renamed": before["a"], "b": before["b"], "c": before["c"]}
    assert index.video(before["b"]).modified == 1


def test_copies_are_encoded_once_and_each_keeps_the_video(index: VideoIndex, videos: Path, tmp_path: Path) -> None:
    for copy in ("copy.mp4", "deep/copy2.mp4"):
        shutil.copy(videos / "a.mp4", videos / copy)
    report = index.add(videos)
    assert (report.added, report.recognised) == (0, 2)
    (entry,) = [entry for entry in index.videos() if entry.copies]
    assert [path.name for path in (entry.path, *entry.copies)] == ["a.mp4", "copy.mp4", "copy2.mp4"]
    (videos / "a.mp4").unlink()
    assert index.add(videos).removed == 1
    assert index.video(entry.video_id).path.name == "copy.mp4"
    fresh = VideoIndex(tmp_path / "other", model=open_tiny())
    assert fresh.add(videos, decoders=3).added == 3  # copies of one run too


def test_what_is_gone_is_dropped_but_not_a_whole_folder(index: VideoIndex, videos: Path) -> None:
    (videos / "deep" / "c.avi").unlink()
    assert index.add(videos).removed == 1
    assert titles(index) == ["a", "b"]
    hidden = videos.with_name("disk unplugged")
    videos.rename(hidden)
    videos.mkdir()
    report = index.add(videos)
    assert (report.removed, report.not_dropped) == (0, [str(videos)])
    assert titles(index) == ["a", "b"]
    videos.rmdir()
    hidden.rename(videos)
    assert index.add().unchanged == 2


def test_a_disk_that_is_not_connected_keeps_its_videos(index: VideoIndex, videos: Path, tmp_path: Path) -> None:
    other = clip(tmp_path / "other" / "d.mp4", 4)
    shutil.copy(videos / "a.mp4", tmp_path / "other" / "copy.mp4")
    index.add(tmp_path / "other")
    assert not any(hit.offline for hit in index.search("a dog", collapse=False))
    hidden = videos.with_name("disk unplugged")
    videos.rename(hidden)
    for make in (lambda: None, videos.mkdir):  # gone, and an empty mount point
        make()
        report = index.add()
        assert (report.removed, report.not_dropped) == (0, [str(videos)])
        hits = {hit.title: hit for hit in index.search("a dog", collapse=False)}
        assert {title: hit.offline for title, hit in hits.items()} == {"copy": False, "b": True, "c": True, "d": False}
        assert hits["copy"].copies == (videos / "a.mp4",)  # what is there comes first
        assert hits["d"].path == other
        assert {entry.title for entry in index.videos() if entry.offline} == {"b", "c"}
        assert (index.status().offline, index.status().offline_roots) == (2, (videos,))
    videos.rmdir()
    hidden.rename(videos)
    assert (index.status().offline, index.status().offline_roots) == (0, ())
    assert index.add().unchanged == 5


def test_a_disk_below_an_indexed_folder_that_is_not_mounted_keeps_its_videos(
    index: VideoIndex, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, mounted = videos / "disk", {str(videos / "disk"), "/"}
    monkeypatch.setattr(os.path, "ismount", lambda path: os.fspath(path) in mounted)
    clip(disk / "deep" / "d.mp4", 4)
    index.add()
    disk.rename(videos.with_name("unplugged"))
    mounted.remove(str(disk))
    for make in (lambda: None, disk.mkdir):  # gone, and an empty mount point
        make()
        report = index.add()
        assert (report.removed, report.not_dropped) == (0, [str(disk)])
        assert titles(index) == ["a", "b", "c", "d"]
    disk.rmdir()
    videos.with_name("unplugged").rename(disk)
    mounted.add(str(disk))
    assert (index.add().unchanged, index.add().not_dropped) == (4, [])
    shutil.rmtree(disk / "deep")  # while it is mounted, what is deleted is gone
    clip(disk / "e.mp4", 5)
    assert index.add().removed == 1
    assert index.remove(disk) == 1
    mounted.remove(str(disk))
    assert index.add().not_dropped == [], "nothing of it is left"


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_to_a_disk_that_is_away_keeps_its_video(index: VideoIndex, videos: Path, tmp_path: Path) -> None:
    disk = clip(tmp_path / "disk" / "d.mp4", 4).parent
    (videos / "d.mp4").symlink_to(disk / "d.mp4")
    assert index.add().added == 1
    disk.rename(tmp_path / "unplugged")
    report = index.add()
    assert (report.removed, list(report.failed)) == (0, [str(videos / "d.mp4")])
    assert titles(index) == ["a", "b", "c", "d"]
    (videos / "d.mp4").unlink()
    assert index.add().removed == 1


def test_files_that_are_given_in_a_list_are_each_stamped_once(videos: Path) -> None:
    seen: set[str] = set()
    stamped = _stamped([videos / "a.mp4", videos / "b.mkv", videos / "gone.mp4"], seen, IndexReport())
    assert {file.path for file in islice(stamped, 5)} == seen == {str(videos / "a.mp4"), str(videos / "b.mkv")}


def test_a_folder_that_moved_is_followed_without_reading_it(
    index: VideoIndex, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {entry.title: entry.video_id for entry in index.videos()}
    index.remove(videos / "deep")
    with pytest.raises(SearchError, match="connect the disk first"):
        index.move_root(videos, tmp_path / "not there")
    videos.rename(tmp_path / "[new] place")
    reader = VideoIndex(index.folder, model=open_tiny())
    assert [hit.offline for hit in reader.search("a dog", collapse=False)] == [True, True]
    with pytest.raises(SearchError, match=rf"has nothing in .*; its folders are: {videos}"):
        index.move_root(tmp_path / "elsewhere", tmp_path)
    assert index.move_root("videos", tmp_path / "[new] place") == 2  # the name of the root is enough
    monkeypatch.setattr(Indexer, "run", None)
    assert index.add().unchanged == 2  # what was removed stays out
    assert index.status().roots == (tmp_path / "[new] place",)
    assert {hit.path for hit in reader.search("a dog", collapse=False) if not hit.offline} == {
        tmp_path / "[new] place" / "a.mp4", tmp_path / "[new] place" / "b.mkv",
    }  # fmt: skip
    assert {entry.title: entry.video_id for entry in index.videos()} == {name: ids[name] for name in ("a", "b")}


def test_only_the_folders_of_a_run_are_looked_at(index: VideoIndex, videos: Path, tmp_path: Path) -> None:
    clip(tmp_path / "more" / "d.mp4", 4)
    (videos / "a.mp4").unlink()
    assert index.add(tmp_path / "more").removed == 0
    assert titles(index) == ["a", "b", "c", "d"]
    assert index.add().removed == 1
    assert index.status().roots == (videos, tmp_path / "more")


def test_a_bad_file_has_its_reason_and_stops_nothing(tmp_path: Path, videos: Path) -> None:
    (videos / "text.mp4").write_text("no video")
    (videos / "empty.mkv").write_bytes(b"")
    (videos / "half.mp4").write_bytes((videos / "a.mp4").read_bytes()[:900])
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    report = index.add(videos)
    assert report.added == 3
    reasons = {Path(path).name: reason for path, reason in report.failed.items()}
    assert sorted(reasons) == ["empty.mkv", "half.mp4", "text.mp4"]
    assert reasons["text.mp4"].startswith("not-a-video: this is not a video")
    assert reasons["half.mp4"].startswith("truncated")
    again = index.add(videos)
    assert (again.added, again.failed) == (0, report.failed)  # told again, not tried again
    assert index.status().failed == report.failed
    clip(videos / "text.mp4", 9)
    assert "text.mp4" not in {Path(path).name for path in index.add(videos).failed}


def test_unreadable_files_and_folders_are_told_and_kept(
    index: VideoIndex, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, stopped: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    clip(videos / "new.mp4", 5)
    monkeypatch.setattr("centerclip.search.indexer.content_id", refuse)
    report = index.add(videos)
    assert {Path(path).name: reason for path, reason in report.failed.items()} == {
        "new.mp4": "unreadable: Permission denied"
    }
    monkeypatch.undo()
    assert index.add(videos).added == 0
    assert index.add(videos, retry=True).added == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes of POSIX")
def test_pipes_devices_and_immense_files_are_failures_and_nothing_waits_for_them(
    index: VideoIndex, videos: Path
) -> None:
    os.mkfifo(videos / "pipe.mp4")
    (videos / "device.mp4").symlink_to("/dev/zero")
    with (videos / "sparse.mp4").open("wb") as file:
        file.truncate(3 * 10**12)
    clip(videos / "new.mp4", 5)
    steps: list[Progress] = []
    report = index.add(videos, on_progress=steps.append)
    assert all(step.total_seconds < 10 for step in steps)  # not taken from the size of what cannot be a video
    assert {Path(path).name: reason.split(":")[0] for path, reason in report.failed.items()} == {
        "pipe.mp4": "not-a-video",
        "device.mp4": "not-a-video",
        "sparse.mp4": "too-large",
    }
    assert index.add(videos).failed == report.failed  # recorded


def test_an_interrupt_ends_the_run_while_a_file_is_hashed(
    index: VideoIndex, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hash_for_ever(path: Path, stopped: Callable[[], bool]) -> str:
        while not stopped():
            time.sleep(0.01)
        raise InterruptedError

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    clip(videos / "new.mp4", 5)
    monkeypatch.setattr("centerclip.search.indexer.content_id", hash_for_ever)
    monkeypatch.setattr("centerclip.search.indexer.COMMIT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        index.add(videos, on_progress=interrupt)
    monkeypatch.undo()
    assert index.add(videos).added == 1


def test_hashing_can_be_stopped(tmp_path: Path) -> None:
    film = clip(tmp_path / "film.mp4", 1)
    assert content_id(film) == hashlib.blake2b(film.read_bytes(), digest_size=16).hexdigest()
    with pytest.raises(InterruptedError):
        content_id(film, lambda: True)


def test_progress_is_in_seconds_of_video_and_moves_within_a_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("centerclip.search.indexer.COMMIT_SECONDS", 0.0)
    monkeypatch.setattr("centerclip.search.indexer.CPU_BATCH", 1)
    scenes(tmp_path / "film.mp4", [1, 2, 3, 4, 5], seconds=12)
    steps: list[Progress] = []
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    index.add(tmp_path / "film.mp4", on_progress=steps.append, detail="fine")
    within = [step for step in steps if step.finished == 0 and step.video_seconds > 0]
    # Up to the last frame of each window, half a second before its end: a film is all there when it is in the store.
    assert list(dict.fromkeys(step.video_seconds for step in within)) == pytest.approx([11.5, 23.5, 35.5, 47.5, 59.5])
    assert [step.total_seconds for step in within] == pytest.approx([60] * len(within))
    assert all(step.seconds_left is not None for step in within)
    assert (steps[-1].finished, steps[-1].share, steps[-1].seconds_left) == (1, 1, 0)


def test_the_length_of_files_that_are_still_closed_comes_from_their_size() -> None:
    early = Progress(finished=0, total=4, video_seconds=0, seconds=1)
    assert (early.share, early.seconds_left) == (0, None)
    later = Progress(finished=1, total=4, video_seconds=30, seconds=10, total_seconds=120)
    assert (later.share, later.seconds_left) == (0.25, 30)
    recognised = Progress(finished=3, total=4, video_seconds=0, seconds=1)  # nothing to encode: by the files
    assert recognised.share == 0.75


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_listed_loses_nothing(index: VideoIndex, videos: Path) -> None:
    (videos / "deep").chmod(0)
    try:
        report = index.add(videos)
    finally:
        (videos / "deep").chmod(stat.S_IRWXU)
    assert report.removed == 0
    assert str(videos / "deep") in report.failed


def test_remove_forgets_files_folders_and_ids(index: VideoIndex, videos: Path) -> None:
    assert index.remove(videos / "deep") == 1
    (first, second) = index.videos()
    assert index.remove(videos=[first.video_id]) == 1
    assert [entry.video_id for entry in index.videos()] == [second.video_id]
    assert index.remove(videos / "not there") == 0
    with pytest.raises(UnknownVideo, match="has no video"):
        index.video(first.video_id)
    assert index.remove(videos) == 1
    assert (index.status().videos, index.status().roots, index.status().ignore) == (0, (), ())
    assert len(index.search("anything")) == 0
    with pytest.raises(SearchError, match="nothing to index yet"):
        index.add()


def test_what_was_removed_stays_out_until_it_is_named(index: VideoIndex, videos: Path) -> None:
    clip(videos / "[odd] name.mp4", 7)
    index.add()
    index.remove(videos / "[odd] name.mp4", videos / "deep")
    clip(videos / "deep" / "new.mp4", 8)
    report = index.add(videos)
    assert (report.added, report.recognised, titles(index)) == (0, 0, ["a", "b"])
    (first,) = [entry for entry in index.videos() if entry.title == "a"]
    index.remove(videos=[first.video_id])
    index.add()
    assert titles(index) == ["b"]
    index.add(videos / "deep", videos / "[odd] name.mp4")
    assert titles(index) == ["[odd] name", "b", "c", "new"]
    assert index.add().unchanged == 4


def test_patterns_and_ignore_files_leave_videos_out(index: VideoIndex, videos: Path) -> None:
    for name in ("x.gif.mp4", "deep/raw/x.mp4", "deep/raw/y.mov", "deep/more/proxy.mp4"):
        clip(videos / name, len(name))
    (videos / "deep" / ".centerclipignore").write_text("# of the camera\nraw/*.mov\n\nproxy.*\n")
    index.add(videos, exclude=["*.gif.mp4", "deep/*.avi"])
    assert titles(index) == ["a", "b", "x"]
    assert index.add(videos).unchanged == 3  # also later
    assert index.status().ignore == ("*.gif.mp4", "deep/*.avi")
    (videos / "deep" / ".centerclipignore").write_text("raw/\n")
    assert [path.name for path in find_videos(videos)] == ["a.mp4", "b.mkv", "x.gif.mp4", "c.avi", "proxy.mp4"]


def test_a_clip_of_the_index_is_not_its_own_hit(index: VideoIndex, videos: Path, tmp_path: Path) -> None:
    copy = shutil.copy(videos / "a.mp4", tmp_path / "elsewhere.mp4")
    for query in (videos / "a.mp4", copy):
        assert sorted(hit.title for hit in index.search(video=query, collapse=False)) == ["b", "c"]
    assert len(index.search("a dog", video=copy, name="a.mp4", collapse=False)) == 0
    assert len(index.search(video=clip(tmp_path / "other.mp4", 9), collapse=False)) == 3


def test_an_image_is_a_file_a_pil_image_or_an_array(index: VideoIndex, tmp_path: Path) -> None:
    array = picture(1)
    Image.fromarray(array).save(tmp_path / "1.png")
    answers = [index.search(image=image)[0] for image in (tmp_path / "1.png", Image.fromarray(array), array)]
    assert {(hit.title, hit.score) for hit in answers} == {("b", answers[0].score)}
    with pytest.raises(SearchError, match=r"not an image: .* uint8 \[H, W, 3\]"):
        index.search(image=array.astype(np.float64))


def test_sentences_and_dates_that_cannot_be_are_refused(index: VideoIndex) -> None:
    for text in ("\udcff dog", " "):
        with pytest.raises(SearchError, match="the sentence"):
            index.search(text)
        with pytest.raises(SearchError, match="the sentence"):
            index.encode_texts(["a dog", text])
    for date in ("0001", "soon", "2024-13"):
        with pytest.raises(SearchError, match="is not a date"):
            index.search("a dog", after=date)


def test_long_videos_have_many_windows_and_moments_are_seconds_long(tmp_path: Path) -> None:
    film = scenes(tmp_path / "film.mp4", [1, 2, 3, 4, 5], seconds=12)
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    index.add(film, detail="fine")
    (entry,) = index.videos()
    assert entry.segments == 20
    spans = [(start, end) for start, end, _ in index.segments(entry.video_id)]
    assert spans == [(3.0 * n, 3.0 * n + 3) for n in range(20)]
    coarse = VideoIndex(tmp_path / "coarse", model=open_tiny(), every=5)
    coarse.add(film, detail="fine")
    assert coarse.videos()[0].segments == 4


def test_an_index_refuses_another_model_or_setting(
    index: VideoIndex, videos: Path, tmp_path: Path, model: Path
) -> None:
    for options in ({"clustering": "B2-2,8"}, {"frames": 8}, {"every": 2.0}):
        with pytest.raises(OtherSettings, match="was made with"):
            VideoIndex(tmp_path / "index", **options).add(videos)  # type: ignore[arg-type]
    other = save_model(tmp_path / "other", seed=5)
    with pytest.raises(OtherSettings, match=r"was made with .*, not with"):
        VideoIndex(tmp_path / "index", model=other).search("a dog")
    assert VideoIndex(tmp_path / "index", model=model).add(videos).unchanged == 3  # the same weights from a folder


@pytest.mark.parametrize("cosine", [0.995, 0.9])
def test_precisions_that_were_found_to_differ_are_not_mixed(cosine: float, tmp_path: Path) -> None:
    """The index was made in 8 bits elsewhere; here they were measured, and this model runs in float32."""
    model = open_tiny()
    settings = replace(settings_of(model, tmp_path, 1.0), precision="int8")
    assert Encoder(settings, model).model() is model  # nothing was measured here
    numbers = {"cosine": cosine, "text_cosine": 0.999, "order": 0.99, "centres": 0.9, "speed": 2.0, "text_speed": 2.0}
    model.report = {"int8": {"precision": "int8", "processor": processor(), **numbers}}
    if cosine > 0.99:
        assert Encoder(settings, model).model() is model
    else:
        with pytest.raises(OtherSettings, match=r"made in int8, which is not close to float32 .* --reindex"):
            Encoder(settings, model)


def test_another_model_is_told_before_what_it_cannot_do(index: VideoIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*asked: object) -> None:
        raise SettingError("clustering can come after block 1 to 5, not 6")

    with pytest.raises(OtherSettings, match=r"was made with .*, not with no such model\. Leave the setting out"):
        VideoIndex(index.folder, model="no such model").add()
    monkeypatch.setattr("centerclip.search.index.open_model", refuse)
    with pytest.raises(OtherSettings, match=r"was made with .*, not with demo\. Leave the setting out"):
        VideoIndex(index.folder, model="demo").add()


def test_a_new_index_says_that_it_takes_the_small_model_and_keeps_it(
    videos: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("centerclip.search.index.default_model", lambda: (str(model), "no network"))
    index = VideoIndex(tmp_path / "new")
    with pytest.warns(
        UserWarning, match=r"cannot be reached \(no network\).*small model.*--reindex --model laion/CLIP"
    ):
        index.add(videos)
    monkeypatch.setattr("centerclip.search.index.default_model", lambda: pytest.fail("an index keeps its model"))
    assert VideoIndex(tmp_path / "new").add(videos).unchanged == 3
    assert VideoIndex(tmp_path / "new").add(reindex=True).added == 3
    assert VideoIndex(tmp_path / "new").status().model == str(model)


def test_reindex_makes_it_again_with_another_setting(index: VideoIndex, videos: Path, tmp_path: Path) -> None:
    ids = [entry.video_id for entry in index.videos()]
    again = VideoIndex(tmp_path / "index", model=open_tiny(), every=0.05)
    report = again.add(reindex=True, detail="fine")
    assert report.added == 3
    assert again.status().every == 0.05
    assert again.videos()[0].segments > 4
    assert [entry.video_id for entry in index.videos()] == ids  # an index that is open goes on with the new one
    assert index.status().segments == again.status().segments


def test_an_index_of_lancedb_says_reindex_which_keeps_its_folders(index: VideoIndex, videos: Path) -> None:
    settings = asdict(index._database.settings())
    index.close()
    index._database.path.unlink()
    for name in ("videos.lance", "files.lance", "snapshot-1"):
        (index.folder / name).mkdir()
    (index.folder / "index.json").write_text(json.dumps(settings | {"format": 2, "ignore": ["b.*"]}))
    for use in (lambda: VideoIndex(index.folder, create=False), lambda: VideoIndex(index.folder).add(videos)):
        with pytest.raises(DamagedIndex, match=r"earlier version .* --reindex`, which keeps its folders"):
            use()
    again = VideoIndex(index.folder, model=open_tiny())
    assert again.add(reindex=True).added == 2
    assert (again.status().roots, again.status().ignore) == ((videos,), ("b.*",))
    assert sorted(path.name for path in index.folder.iterdir() if "lock" not in path.name)[0] == "index.db"
    assert not any(path.is_dir() or path.suffix == ".json" for path in index.folder.iterdir())


def test_a_damaged_index_is_made_again(index: VideoIndex, videos: Path) -> None:
    index.close()
    path = index.folder / "index.db"
    whole = path.read_bytes()
    path.write_bytes(b"damaged" * 1000)
    with pytest.raises(DamagedIndex, match="--reindex"):
        VideoIndex(index.folder).search("a dog")
    again = VideoIndex(index.folder, model=open_tiny())
    with pytest.raises(SearchError, match="name a folder"):
        again.add(reindex=True)
    again.close()
    path.write_bytes(whole)
    assert again.status().videos == 3  # a command that cannot work has not removed anything
    again.close()
    path.write_bytes(b"damaged" * 1000)
    assert again.add(videos, reindex=True).added == 3
    assert len(index.search("a dog", collapse=False)) == 3  # another file of the same name


def test_a_model_that_was_never_saved_is_asked_for(index: VideoIndex) -> None:
    with pytest.raises(OtherSettings, match="never saved; pass that model again"):
        VideoIndex(index.folder).search("a dog")


def test_an_index_belongs_to_weights_and_pixels_not_to_names_and_unrelated_fields(
    index: VideoIndex, videos: Path
) -> None:
    @dataclass(frozen=True)
    class NewerPreprocess(Preprocess):
        cache: int = 3

    alike = open_tiny()
    alike.backbone.register_buffer("new_in_transformers", torch.ones(3))
    alike.preprocess = NewerPreprocess(**vars(alike.preprocess))
    assert VideoIndex(index.folder, model=alike).add(videos).unchanged == 3
    for change in ({"size": 40}, {"mean": (0.1, 0.2, 0.3)}, {"filter": "bilinear"}):
        other = open_tiny()
        other.preprocess = replace(other.preprocess, **change)
        with pytest.raises(OtherSettings, match="was made with"):
            VideoIndex(index.folder, model=other).status()
    other = open_tiny()
    with torch.no_grad():
        other.backbone.text_projection.weight *= 1.01
    with pytest.raises(OtherSettings, match="was made with"):
        VideoIndex(index.folder, model=other).status()


def test_a_second_indexer_says_so(index: VideoIndex, videos: Path) -> None:
    with writer_lock(index.folder):
        assert is_busy(index.folder)
        with pytest.raises(IndexBusy, match=rf"PID {os.getpid()}, since .*is writing to the index"):
            index.add(videos)
        assert len(index.search("a dog")) == 3  # searching goes on
    assert not is_busy(index.folder)
    assert index.add(videos).unchanged == 3


def test_an_index_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound, match="centerclip index FOLDER"):
        VideoIndex(tmp_path / "none", create=False)
    with pytest.raises(IndexNotFound, match="there is no index"):
        VideoIndex(tmp_path / "none").search("a dog")
    with pytest.raises(SearchError, match="no file or folder"):
        VideoIndex(tmp_path / "none", model=open_tiny()).add(tmp_path / "nowhere")
    assert not (tmp_path / "none").exists()


def test_a_folder_without_videos_says_so_before_a_model_is_opened(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SearchError, match=rf"no videos in {tmp_path / 'empty'}"):
        VideoIndex(tmp_path / "none", model="no such model").add(tmp_path / "empty")
    assert not (tmp_path / "none").exists()
