"""From scores to hits: merging, ranking, collapsing, filters, several kinds of query."""

import itertools
import os
import threading
import tracemalloc
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from centerclip import VideoIndex
from centerclip.cluster import Setting
from centerclip.search import Moment, SearchError
from centerclip.search.filters import Filters
from centerclip.search.folder import DEFAULT_SHARE, default_clustering
from centerclip.search.matrix import Buffer
from centerclip.search.query import is_english
from centerclip.search.ranking import moments_of, rank
from centerclip.search.sqlite import Contents, SqliteStore, SqliteView
from centerclip.search.store import Floats, Segments, Video
from centerclip.video import read_times
from tests.search.collection import clip, open_tiny, scenes
from tests.search.memory import MemoryStore


def segments(vectors: Floats) -> Segments:
    starts = 3 * np.arange(len(vectors), dtype=np.float32)
    return Segments(starts, starts + 3, np.asarray(vectors, np.float32))


def moments(scores: list[float], deviation: float = 0.1) -> tuple[tuple[float, float, float], ...]:
    values = np.array(scores, np.float32)
    found = moments_of(segments(np.zeros((len(scores), 2))), values, deviation)
    return tuple((moment.start, moment.end, round(moment.score, 3)) for moment in found)


def test_neighbours_that_score_alike_are_one_moment() -> None:
    assert moments([0.1, 0.45, 0.5, 0.46, 0.1, 0.1]) == ((3, 12, 0.5),)
    assert moments([0.5, 0.5, 0.5]) == ((0, 9, 0.5),)
    assert moments([0.3]) == ((0, 3, 0.3),)


def test_a_second_peak_is_a_moment_of_its_own_if_it_is_nearly_as_good() -> None:
    assert moments([0.5, 0.1, 0.1, 0.45, 0.1]) == ((0, 3, 0.5), (9, 12, 0.45))
    assert moments([0.5, 0.1, 0.1, 0.2, 0.1]) == ((0, 3, 0.5),)
    # The slope of a peak is no moment.
    assert moments([0.1, 0.5, 0.4, 0.1]) == ((3, 6, 0.5),)


def test_there_are_at_most_five_moments_and_they_do_not_overlap() -> None:
    many = moments([0.5, 0.1] * 10)
    assert len(many) == 5
    ordered = sorted(many)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))


def unit(*rows: list[float]) -> Floats:
    vectors = np.array(rows, np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def store() -> MemoryStore:
    """Three videos; what we look for is in the middle of the second and at the end of the third."""
    store = MemoryStore(3)
    rows = {
        "a": unit([0, 1, 0], [0, 1, 0.1]),
        "b": unit([0, 0, 1], [1, 0.1, 0], [0, 0, 1]),
        "c": unit([0, 0, 1], [0.3, 1, 0], [0, 1, 0], [1, 0.5, 0]),
    }
    store.add([(Video(name, 9.0, 1, 1, 0.0), segments(vectors), ()) for name, vectors in rows.items()], [])
    return store


def test_videos_are_ranked_by_their_best_moment(store: MemoryStore) -> None:
    query = unit([1, 0, 0])[0]
    ranked = rank(store.view(), query, 10)
    assert [entry.video for entry in ranked] == ["b", "c", "a"]
    assert (ranked[0].moments[0].start, ranked[0].moments[0].end) == (3, 6)
    assert ranked[1].moments[0].start == 9
    assert [entry.video for entry in rank(store.view(), query, 1)] == ["b"]
    assert [entry.video for entry in rank(store.view(), query, 10, among=["a", "c"])] == ["c", "a"]
    assert [entry.video for entry in rank(store.view(), query, 10, min_score=0.8)] == ["b", "c"]


def test_moments_of_one_video_can_rank_apart() -> None:
    store = MemoryStore(2)
    rows = unit([1, 0], [0, 1], [0, 1], [1, 0.1], [0, 1])
    store.add([(Video("a", 9.0, 1, 1, 0.0), segments(rows), ())], [])
    ranked = rank(store.view(), unit([1, 0])[0], 10, by_moment=True)
    assert [(entry.video, entry.moments[0].start) for entry in ranked] == [("a", 0.0), ("a", 9.0)]


def test_further_moments_of_a_few_videos_do_not_push_out_better_videos() -> None:
    """Many copies of one video are found first; collapsed, their weaker moments must not come before another video."""
    store = MemoryStore(3)
    copy = unit([1, 0, 0], [0, 0, 1], [1, 0.45, 0], [0, 0, 1], [1, 0.5, 0])
    store.add([(Video(f"copy{n}", 15.0, 1, 1, 0.0), segments(copy), ()) for n in range(40)], [])
    store.add([(Video("other", 3.0, 1, 1, 0.0), segments(unit([1, 0, 0.3])), ())], [])
    ranked = rank(store.view(), unit([1, 0, 0])[0], 2, by_moment=True)
    assert ranked[0].video.startswith("copy")
    assert ranked[1].video == "other"


def test_weak_moments_of_near_duplicates_do_not_end_a_search_with_a_least_score() -> None:
    """The copies' second moments are below the least score, the other videos are not: those must still be found."""
    store = MemoryStore(3)
    copy = unit([1, 0, 0], [0, 0, 1], [1, 0.9, 0])
    store.add([(Video(f"copy{n}", 9.0, 1, 1, 0.0), segments(copy), ()) for n in range(40)], [])
    for name, row in (("second", [1, 0, 0.4]), ("third", [1, -0.5, 0])):
        store.add([(Video(name, 3.0, 1, 1, 0.0), segments(unit(row)), ())], [])
    ranked = rank(store.view(), unit([1, 0, 0])[0], 3, by_moment=True, min_score=0.8)
    assert [entry.video for entry in ranked] == ["copy0", "second", "third"]


def test_near_duplicates_stand_behind_the_best_of_them(store: MemoryStore) -> None:
    twin = unit([0, 0, 1], [1, 0.12, 0], [0, 0.02, 1])
    store.add([(Video("twin", 9.0, 1, 1, 0.0), segments(twin), ())], [])
    query = unit([1, 0, 0])[0]
    ranked = rank(store.view(), query, 10)
    assert [(entry.video, entry.duplicates) for entry in ranked] == [("b", ("twin",)), ("c", ()), ("a", ())]
    assert [entry.video for entry in rank(store.view(), query, 10, collapse=False)] == ["b", "twin", "c", "a"]
    # There are as many hits as were asked for, when there are enough videos.
    assert [entry.video for entry in rank(store.view(), query, 2)] == ["b", "c"]


def test_many_segments_of_one_film_do_not_hide_the_other_videos() -> None:
    store = MemoryStore(4)
    random = np.random.default_rng(0)
    film = unit([1, 0, 0, 0])[0] + 0.01 * random.normal(size=(5000, 4))
    clips = [(Video(f"clip{n}", 3.0, 1, 1, 0.0), segments(unit([1, n + 1, 0, 0])), ()) for n in range(20)]
    store.add([(Video("film", 15000.0, 1, 1, 0.0), segments(film.astype(np.float32)), ()), *clips], [])
    ranked = rank(store.view(), unit([1, 0, 0, 0])[0], 5, collapse=False)
    assert [entry.video for entry in ranked] == ["film", "clip0", "clip1", "clip2", "clip3"]


def test_thousands_of_near_duplicates_are_collapsed_one_by_one() -> None:
    """Memory grows with the hits that are asked for, not with the square of the near-duplicates."""
    count, width = 6_000, 8
    vectors = np.zeros((count, 1, width), np.float32)
    vectors[:, 0, 0] = 1
    vectors[:, 0, 1] = np.linspace(0, 0.1, count)
    vectors[-5:, 0] = np.eye(width)[2:7] + 0.05 * np.eye(width)[0]
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    store = SqliteStore(Path("/not/there"), width)
    buffer = Buffer(width)
    buffer.reserve(count)
    for number in range(count):
        buffer.append(str(number), np.zeros(1, np.float32), np.ones(1, np.float32), vectors[number])
    videos = {str(number): Video(str(number), 1.0, 1, 1, 0.0) for number in range(count)}
    view = SqliteView(store, Contents(videos, {}, dict.fromkeys(videos, 1), has_lines=False))
    view.block = buffer.block(videos)
    tracemalloc.start()
    try:
        ranked = rank(view, np.eye(width, dtype=np.float32)[0], 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [entry.video for entry in ranked] == ["0", *(str(count - 5 + number) for number in range(3))]
    assert ranked[0].duplicates == tuple(str(number) for number in range(1, 101))  # the first of them
    assert peak < 8 * 2**20  # a byte for every pair would be 36 MB


def save_frame(video: Path, time: float, target: Path) -> None:
    Image.fromarray(read_times(video, [time]).rgb[0]).save(target)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    for number in range(1, 6):
        clip(folder / f"{number}.mp4", number, seconds=number)
        os.utime(folder / f"{number}.mp4", times=(datetime(2020 + number, 5, 1).timestamp(),) * 2)
    scenes(folder / "deep" / "Film.mkv", [1, 6, 3], seconds=12)
    for number in range(1, 6):
        save_frame(folder / f"{number}.mp4", 0.5, folder / f"{number}.png")
    save_frame(folder / "deep" / "Film.mkv", 18, folder / "deep" / "Film.png")
    return folder


@pytest.fixture(scope="module")
def index(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> VideoIndex:
    index = VideoIndex(tmp_path_factory.mktemp("index"), model=open_tiny())
    assert index.add(folder, detail="fine").added == 6
    return index


def test_an_image_finds_its_clip_and_the_moment_in_a_film(index: VideoIndex, folder: Path) -> None:
    hits = index.search(image=folder / "deep" / "Film.png")
    assert hits[0].path == folder / "deep" / "Film.mkv"
    assert 12 <= hits[0].start < hits[0].end <= 24
    assert hits[0].score > 0.5  # the image is resized by another filter than the video
    assert hits[0].moments[0] == Moment(hits[0].start, hits[0].end, hits[0].score)
    apart = index.search(image=folder / "3.png", collapse=False, top=2)
    assert {hit.title for hit in apart} == {"3", "Film"}


def test_a_clip_finds_what_is_like_it(index: VideoIndex, tmp_path: Path) -> None:
    hit = index.search(video=clip(tmp_path / "like it.mp4", 4, rate=6))[0]
    assert (hit.title, hit.path.name) == ("4", "4.mp4")
    assert hit.score > 0.95


def test_parts_of_a_query_count_alike(index: VideoIndex, folder: Path, tmp_path: Path) -> None:
    both = index.search(image=folder / "2.png", video=clip(tmp_path / "like 4.mp4", 4, rate=6), top=2)
    assert {hit.title for hit in both} == {"2", "4"}
    text_alone = [hit.video_id for hit in index.search("a dog", top=6, collapse=False)]
    mixed = [hit.video_id for hit in index.search("a dog", image=folder / "2.png", top=6, collapse=False)]
    image_alone = [hit.video_id for hit in index.search(image=folder / "2.png", top=6, collapse=False)]
    places = [[order.index(video) for video in text_alone] for order in (text_alone, image_alone, mixed)]
    # Where sentence and image agree on the order of two videos, so does the mix.
    for a in range(6):
        for b in range(a):
            if (places[0][a] < places[0][b]) == (places[1][a] < places[1][b]):
                assert (places[2][a] < places[2][b]) == (places[0][a] < places[0][b])


def test_filters_hold(index: VideoIndex, folder: Path) -> None:
    def found(**options: object) -> list[str]:
        return sorted(hit.title for hit in index.search("a dog", collapse=False, **options))  # type: ignore[arg-type]

    assert found() == ["1", "2", "3", "4", "5", "Film"]
    assert found(folder=folder / "deep") == ["Film"]
    assert found(name="film") == ["Film"]
    assert found(name="[12].mp4") == ["1", "2"]
    assert found(min_duration=4, max_duration=10) == ["4", "5"]
    assert found(after="2024", before="2026") == ["4", "5"]
    assert found(after=date(2024, 5, 2), before=datetime(2026, 1, 1)) == ["5"]
    assert found(before="2022-05-02") == ["1", "2"]
    assert found(folder=folder / "deep", name="1") == []
    with pytest.raises(SearchError, match="after: 'yesterday' is not a date"):
        found(after="yesterday")


def test_filters_by_what_the_container_says(tmp_path: Path) -> None:
    def found(**options: object) -> list[str]:
        return sorted(hit.title for hit in index.search("a dog", collapse=False, **options))  # type: ignore[arg-type]

    tags = {
        "creation_time": "2019-07-14T10:30:00Z",
        "make": "Canon",
        "model": "Canon EOS R",
        "location": "+52.37+004.89/",
    }
    clip(tmp_path / "videos" / "tagged.mkv", 1, tags=tags)
    clip(
        tmp_path / "videos" / "later.mkv",
        2,
        tags={"creation_time": "2021-01-01T00:00:00Z", "location": "-33.92+018.42/"},
    )
    clip(tmp_path / "videos" / "plain.mkv", 3)
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    index.add(tmp_path / "videos")
    assert found(recorded_after="2019") == ["later", "tagged"]
    assert found(recorded_after="2019", recorded_before=date(2020, 1, 1)) == ["tagged"]
    assert found(camera="canon eos") == ["tagged"]
    assert found(camera="") == ["later", "plain", "tagged"]
    assert found(near=(52.0, 4.9, 50)) == ["tagged"]
    assert found(near=(52.0, 4.9, 20)) == []
    assert found(near=(-34.0, -341.6, 20)) == ["later"]  # the same meridian
    assert found(near=(0, 0, 20_100)) == ["later", "tagged"]  # half way round the earth
    (entry,) = [entry for entry in index.videos() if entry.title == "tagged"]
    assert (entry.recorded, entry.camera, entry.latitude, entry.longitude) == (1563100200, "Canon EOS R", 52.37, 4.89)
    with pytest.raises(SearchError, match="recorded_before: 'soon' is not a date"):
        found(recorded_before="soon")


def test_what_passes_a_filter_is_worked_out_once_until_the_index_changes(index: VideoIndex) -> None:
    view = index._open().store.view()
    first = view.passing(Filters(name="*3*"))
    assert first == [hit.video_id for hit in index.search("a dog", name="*3*", collapse=False)]
    assert view.passing(Filters(name="*3*")) is first
    for number in range(50):  # others push it out
        view.passing(Filters(min_duration=float(number)))
    assert len(view._passing) <= 16
    assert view.passing(Filters(name="*3*")) == first


def test_filters_that_leave_nothing_find_nothing(index: VideoIndex) -> None:
    for filters in ({"name": "zzz"}, {"after": "2090"}, {"max_duration": 0.001}, {"min_score": 2.0}):
        results = index.search("a dog", **filters)
        assert (len(results), results.convincing) == (0, False)


def test_similar_leaves_out_the_video_itself(index: VideoIndex, folder: Path) -> None:
    film = index.search(name="Film", image=folder / "1.png")[0]
    assert index.similar(film.video_id, 0.5)[0].title == "1"
    assert index.similar(film.video_id, 30)[0].title == "3"
    assert film.video_id not in {hit.video_id for hit in index.similar(film.video_id, 0.5)}


def test_segments_show_where_in_a_video(index: VideoIndex, folder: Path) -> None:
    film = index.search(name="Film", image=folder / "1.png")[0]
    strip = index.segments(film.video_id, query=index.encode(image=folder / "deep" / "Film.png"))
    assert len(strip) == 12
    best = sorted(strip, key=lambda segment: -segment[2])[:4]
    assert {start for start, _, _ in best} == {12.0, 15.0, 18.0, 21.0}
    assert {score for _, _, score in index.segments(film.video_id)} == {0.0}


@pytest.mark.parametrize("query", [{}, {"text": "  "}, {"image": "not there.png"}])
def test_a_query_that_cannot_be_says_why(index: VideoIndex, query: dict[str, str]) -> None:
    with pytest.raises(SearchError):
        index.search(**query)  # type: ignore[arg-type]


def test_threads_search_at_the_same_time(index: VideoIndex) -> None:
    expected = [hit.video_id for hit in index.search("a dog")]
    answers: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: answers.append([hit.video_id for hit in index.search("a dog")]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 8


def test_a_new_index_clusters_after_half_of_the_blocks_and_keeps_a_share_of_the_tokens(tmp_path: Path) -> None:
    model = open_tiny()
    model.set_clustering("none")
    model.save_pretrained(tmp_path / "hub")
    (tmp_path / "hub" / "centerclip.json").unlink()  # as a model of the hub: nothing says how to cluster
    clip(tmp_path / "videos" / "a.mp4", 0)
    index = VideoIndex(tmp_path / "index", model=tmp_path / "hub", frames=6)
    index.add(tmp_path / "videos")
    blocks, half = len(model.attachment.blocks), len(model.attachment.blocks) // 2
    assert blocks < 7, "a fixed block 6 would not do"
    assert index.status().clustering == f"kmedoids[proportional]:B{half}-2,{DEFAULT_SHARE}"
    assert VideoIndex(tmp_path / "index", clustering=index.status().clustering).search("a dog")


@pytest.mark.parametrize(
    ("blocks", "frames", "expected"),
    [(12, 12, "B6-4"), (6, 12, "B3-4"), (24, 60, "B12-20"), (12, 10, "B6-2"), (2, 7, "B1-1"), (3, 1, "B1-1")],
)
def test_the_default_clustering_fits_every_model(blocks: int, frames: int, expected: str) -> None:
    setting = default_clustering(blocks=blocks, frames=frames)
    assert setting == f"kmedoids[proportional]:{expected},{DEFAULT_SHARE}"
    Setting.parse(setting).check(blocks=blocks, frames=frames, patches=49)


def test_a_tower_of_one_block_has_no_place_for_clustering() -> None:
    assert default_clustering(blocks=1, frames=12) == "none"


@pytest.mark.parametrize(
    ("sentence", "english"),
    [
        ("a dog runs on the beach", True),
        ("birthday cake", True),
        ("la la land", True),
        ("Mona Lisa in the Louvre", True),
        ("café in Paris", True),
        ("", True),
        ("ein Hund läuft am Strand", False),
        ("un chien court sur la plage", False),
        ("un perro corre en la playa", False),
        ("собака бежит по пляжу", False),
        ("沙滩上的狗", False),
    ],
)
def test_sentences_in_other_languages_are_noticed(sentence: str, english: bool) -> None:
    assert is_english(sentence) == english
