"""How finely videos are indexed: chosen, remembered, made finer, sharpened where it matters."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from centerclip import CenterCLIP, VideoIndex
from centerclip.files import content_id
from centerclip.model.pipeline import Decoded, Deliver, Window, encode_as_decoded
from centerclip.search import IndexBusy, SearchError
from centerclip.search.folder import writer_lock
from centerclip.search.indexer import Indexer
from centerclip.search.results import FOUND_FILE, last_found
from centerclip.video.sampling import DetailName
from tests.search.collection import clip, open_tiny, picture, scenes
from tests.video.clips import make_clip


@pytest.fixture
def index(tmp_path: Path) -> VideoIndex:
    return VideoIndex(tmp_path / "index", model=open_tiny())


def moving(path: Path, seed: int, seconds: int = 40, **options: object) -> Path:
    """A picture that moves all the time: no two frames are alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5, options={"g": "50", "sc_threshold": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for step in range(5 * seconds):
            frame = np.roll(picture(seed), step, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    return path


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
    (index.folder / FOUND_FILE).write_text(json.dumps({before["b"].video_id: 2.0, before["c"].video_id: 1.0}))
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


def test_a_search_notes_what_it_found(index: VideoIndex, tmp_path: Path) -> None:
    index.add(clip(tmp_path / "a.mp4", 1))
    (entry,) = index.videos()
    index._remember(index.search("a dog").hits)
    assert set(last_found(index.folder)) <= {entry.video_id}
    (index.folder / FOUND_FILE).write_text("[]")
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


def windows_encoded(model: CenterCLIP) -> list[int]:
    """How many windows a model encodes from now on, call by call."""
    calls: list[int] = []
    encode = model.encode_windows

    def counted(rgb: np.ndarray, mask: np.ndarray, *, half: bool = True) -> tuple[np.ndarray, np.ndarray]:
        calls.append(len(rgb))
        return encode(rgb, mask, half=half)

    model.encode_windows = counted  # type: ignore[method-assign]
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
        calls = windows_encoded(model)
        index = VideoIndex(tmp_path / f"index{still}", model=model)
        index.add(tmp_path / "v", detail=detail)
        found.append((sum(calls), index.search("a dog")[0]))
    (few, hit), (many, other) = found
    assert few < many
    assert few <= 3
    assert (hit.start, hit.end) == pytest.approx((other.start, other.end), abs=4)
    assert hit.score == pytest.approx(other.score, abs=0.01)


def test_a_window_that_follows_itself_is_encoded_once() -> None:
    model = open_tiny()
    size = model.preprocess.size
    rgb = np.random.default_rng(0).integers(0, 255, (2, model.frames, size, size, 3), dtype=np.uint8)
    order = [0, 0, 0, 1, 0]
    encode, calls = model.encode_windows, windows_encoded(model)

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
