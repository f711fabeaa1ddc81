"""How finely videos are indexed: chosen, remembered, made finer, sharpened where it matters."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from centerclip import CenterCLIP, VideoIndex
from centerclip.files import content_id
from centerclip.model.pipeline import Decoded, Deliver, Window, encode_as_decoded
from centerclip.search import IndexBusy, SearchError
from centerclip.search.folder import writer_lock
from centerclip.search.indexer import Indexer, sharpened
from centerclip.search.results import found_file, last_found, note_found
from centerclip.video.sampling import DetailName
from tests.search.collection import clip, moving, open_tiny, scenes
from tests.video.clips import make_clip


@pytest.fixture
def index(tmp_path: Path) -> VideoIndex:
    return VideoIndex(tmp_path / "index", model=open_tiny())


def test_detail_is_remembered_for_each_video_and_for_later_runs(index: VideoIndex, tmp_path: Path) -> None:
    index.add(clip(tmp_path / "v" / "a.mp4", 1), detail="fast")
    index.add(clip(tmp_path / "v" / "b.mp4", 2))
    index.add(clip(tmp_path / "v" / "c.mp4", 3), detail="fine")
    assert {entry.title: entry.detail for entry in index.videos()} == {"a": "fast", "b": "fast", "c": "fine"}
    assert index.status().details == {"fast": 2, "fine": 1}
    fresh = VideoIndex(tmp_path / "other", model=open_tiny())
    fresh.add(tmp_path / "v" / "a.mp4")
    assert fresh.videos()[0].detail == "normal"
    with pytest.raises(SearchError, match="fast, normal, fine"):
        index.add(detail="finest")  # type: ignore[arg-type]


def test_finer_goes_one_step_and_begins_with_what_was_found_last(
    index: VideoIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate("abc"):
        moving(tmp_path / "v" / f"{name}.mp4", seed)
    index.add(tmp_path / "v", detail="fast")
    before = {entry.title: entry for entry in index.videos()}
    note_found(index.folder, [before["c"].video_id])
    note_found(index.folder, [before["b"].video_id])
    order: list[str] = []
    original = Indexer.run

    def run(self: Indexer, files: list, report: object) -> None:
        order.extend(Path(file.path).stem for file in files)
        original(self, files, report)  # type: ignore[arg-type]

    monkeypatch.setattr(Indexer, "run", run)
    assert index.add(finer=True).refined == 3
    assert order == ["b", "c", "a"]
    after = {entry.title: entry for entry in index.videos()}
    assert {entry.detail for entry in after.values()} == {"normal"}
    for name in "abc":
        assert after[name].video_id == before[name].video_id
        assert after[name].segments > before[name].segments
        assert after[name].added == before[name].added
    assert index.add(finer=True, detail="normal").refined == 0  # as fine as asked for
    assert index.add(finer=True).refined == 3
    fine = VideoIndex(tmp_path / "fine", model=open_tiny())
    fine.add(tmp_path / "v", detail="fine")
    scores = [each.segments(before["a"].video_id, "a dog") for each in (index, fine)]
    assert np.allclose(*scores, atol=1e-3)
    assert index.add(finer=True).refined == 0
    assert {hit.title for hit in index.search("a dog", collapse=False)} == set("abc")


def test_what_cannot_be_made_finer_stays_as_it_is(
    index: VideoIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = moving(tmp_path / "film.mp4", 1)
    index.add(film, detail="fast")
    monkeypatch.setattr("centerclip.search.store.File.is_unchanged", property(lambda file: False))
    report = index.add(finer=True)
    assert (report.refined, list(report.failed)) == (0, [str(film)])
    monkeypatch.undo()
    assert [entry.detail for entry in index.videos()] == ["fast"]
    assert index.add(finer=True).refined == 1


def test_a_search_notes_what_it_found_and_writes_nothing_to_the_index(index: VideoIndex, tmp_path: Path) -> None:
    index.add(clip(tmp_path / "a.mp4", 1))
    (entry,) = index.videos()
    index.close()
    before = {path.name: path.stat().st_mtime_ns for path in index.folder.iterdir()}
    reader = VideoIndex(index.folder, model=open_tiny())
    hits = reader.search("a dog").hits
    reader._noted = float("-inf")
    reader._remember(hits)
    reader.close()
    assert {path.name: path.stat().st_mtime_ns for path in index.folder.iterdir()} == before
    assert set(last_found(index.folder)) == {entry.video_id}
    (tmp_path / "link").symlink_to(index.folder)
    assert found_file(tmp_path / "link") == found_file(index.folder)
    assert found_file(tmp_path / "other") != found_file(index.folder)
    found_file(index.folder).write_text("[]")  # damaged
    assert last_found(index.folder) == {}


def test_sharpening_makes_segments_of_the_moment_as_fine_as_can_be(index: VideoIndex, tmp_path: Path) -> None:
    film = moving(tmp_path / "film.mp4", 1, seconds=200)
    index.add(film, detail="fast")
    (entry,) = index.videos()
    coarse = index.segments(entry.video_id)
    hit = index.search("a dog")[0]
    assert index.sharpen([hit]) == 1
    sharp = index.segments(entry.video_id)
    assert all(before[1] == after[0] for before, after in pairwise(sharp))
    assert (sharp[0][0], sharp[-1][1]) == (0, pytest.approx(200))
    inside = [end - start for start, end, _ in sharp if hit.start <= start and end <= hit.end]
    assert max(inside) <= 4.5  # a fine segment has three seconds
    outside = [span for span in sharp if span[1] < hit.start - 60 or span[0] > hit.end + 60]
    assert [span for span in outside if span not in coarse] == []
    assert index.sharpen([hit]) == 0  # it is
    assert index.videos()[0].detail == "fast"
    with writer_lock(index.folder), pytest.raises(IndexBusy):
        index.sharpen([hit])


def test_what_another_process_changed_meanwhile_is_not_sharpened(
    index: VideoIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = moving(tmp_path / "film.mp4", 1, seconds=100)
    index.add(film, detail="fast")
    hit = index.search("a dog")[0]

    def meanwhile(*arguments: object) -> object:
        sharp = sharpened(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        VideoIndex(index.folder, model=open_tiny()).add(finer=True)
        return sharp

    monkeypatch.setattr("centerclip.search.index.sharpened", meanwhile)
    assert index.sharpen([hit]) == 0
    assert index.videos()[0].detail == "normal"


def test_only_files_that_may_be_copies_are_hashed_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip(tmp_path / "v" / "a.mp4", 1)
    (tmp_path / "v" / "copy.mp4").write_bytes((tmp_path / "v" / "a.mp4").read_bytes())
    clip(tmp_path / "v" / "b.mp4", 2, seconds=3)
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    assert index.add(tmp_path / "v").added == 2
    assert {entry.video_id for entry in index.videos()} == {content_id(tmp_path / "v" / f"{n}.mp4") for n in "ab"}
    read: list[str] = []
    monkeypatch.setattr(Indexer, "_read_video", lambda self, task, deliver: read.append(task.files[0].path))
    (tmp_path / "v" / "b.mp4").rename(tmp_path / "v" / "moved.mp4")
    assert index.add(tmp_path / "v").recognised == 1
    assert read == []  # a file of a size that is known is hashed first


def count_encoded(model: CenterCLIP, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many windows, or frames of segments, a model encodes from now on, call by call."""
    calls: list[int] = []

    def counted(encode: Callable, rgb: np.ndarray, *others: object, half: bool = True) -> object:
        calls.append(len(rgb))
        return encode(rgb, *others, half=half)

    for name in ("encode_windows", "encode_segments"):
        monkeypatch.setattr(model, name, partial(counted, getattr(model, name)))
    return calls


@pytest.mark.parametrize("detail", ["normal", "fine"])
def test_a_still_scene_is_encoded_once_and_found_as_before(
    tmp_path: Path, detail: DetailName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are random, and exaggerate every difference."""
    scenes(tmp_path / "v" / "slides.mp4", [1, 2], seconds=60)
    found = []
    for still in (True, False):
        if not still:
            monkeypatch.setattr("centerclip.video.selection.is_still", lambda before, after: False)
            monkeypatch.setattr("centerclip.model.pipeline._is_same", lambda first, second: False)
        model = open_tiny()
        calls = count_encoded(model, monkeypatch)
        index = VideoIndex(tmp_path / f"index{still}", model=model)
        index.add(tmp_path / "v", detail=detail)
        found.append((sum(calls), index.search("a dog")[0]))
    (few, hit), (many, other) = found
    assert few < many
    assert few <= 3
    assert (hit.start, hit.end) == pytest.approx((other.start, other.end), abs=4)
    assert hit.score == pytest.approx(other.score, abs=0.01)


def test_a_window_that_follows_itself_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_tiny()
    size = model.preprocess.size
    rgb = np.random.default_rng(0).integers(0, 255, (2, model.frames, size, size, 3), dtype=np.uint8)
    order = [0, 0, 0, 1, 0]
    encode, calls = model.encode_windows, count_encoded(model, monkeypatch)

    def decode(item: str, deliver: Deliver) -> None:
        for number, place in enumerate(order):
            deliver(number, Window(rgb[place]))

    (done,) = encode_as_decoded(model, ["film"], decode, batch_size=2, decoders=1)
    assert isinstance(done, Decoded)
    assert sum(calls) == 3
    expected, _ = encode(rgb, np.ones(rgb.shape[:2], bool))
    for number, place in enumerate(order):
        assert np.allclose(done.vectors[number][0], expected[place], atol=1e-5)


def test_a_variable_frame_rate_keeps_true_times(index: VideoIndex, tmp_path: Path) -> None:
    """Ten frames in the first second, then one every five."""
    pts = [*range(10), *range(60, 400, 50)]
    index.add(make_clip(tmp_path / "vfr.mkv", pts=pts, rate=10), detail="normal")
    (entry,) = index.videos()
    spans = index.segments(entry.video_id)
    assert (spans[0][0], spans[-1][1]) == (0, pytest.approx(entry.duration, abs=0.01))
    assert all(start < end for start, end, _ in spans)
