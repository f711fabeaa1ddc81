"""Honest grades: what is there is rarely called unlikely, what is not is rarely called sure."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from centerclip import VideoIndex
from centerclip.bundled import DEMO, demo_clips
from centerclip.search import Hit, Results, ranking
from centerclip.search.ranking import MIN_LIKELY, MIN_SURE, Calibration, Grade, background_sentences, grade, rank
from centerclip.search.store import Floats, Segments, Video
from tests.search.memory import MemoryStore

WIDTH = 64


def unit(vectors: Floats) -> Floats:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def world() -> tuple[MemoryStore, Calibration, Floats, Floats]:
    """Topics as directions; segments and sentences are a topic, a little of everything, and noise.

    Returns the store (topics 0 to 39), its calibration with sentences about all 80 topics, and sentences about topics
    that are there and that are not.
    """
    random = np.random.default_rng(0)
    topics = unit(random.normal(size=(80, WIDTH)))
    common = unit(random.normal(size=WIDTH))

    def about(numbers: Floats, noise: float) -> Floats:
        return unit(topics[numbers] + common + noise * unit(random.normal(size=(len(numbers), WIDTH))))

    store = MemoryStore(WIDTH)
    for topic in range(40):
        times = np.arange(4, dtype=np.float32)
        store.add([(Video(str(topic), 4, 1, 1, 0), Segments(times, times + 1, about(np.full(4, topic), 0.8)), ())], [])
    calibration = Calibration(store)
    calibration.vectors = about(random.integers(0, 80, len(background_sentences())), 0.8)
    return store, calibration, about(np.arange(40), 0.8), about(np.arange(40, 80), 0.8)


def test_what_is_there_is_likely_and_what_is_not_is_not_sure(
    world: tuple[MemoryStore, Calibration, Floats, Floats],
) -> None:
    store, calibration, there, absent = world
    calibration.measure()
    again = Calibration(store)  # it is kept

    def share_above(cut: float, queries: Floats) -> float:
        best = [max(again.confidences(query, rank(store.view(), query, 10))) for query in queries]
        return float(np.mean(np.array(best) >= cut))

    assert share_above(MIN_LIKELY, there) >= 0.95
    assert share_above(MIN_SURE, absent) <= 0.15


def test_every_hit_has_a_grade_of_its_own(
    world: tuple[MemoryStore, Calibration, Floats, Floats],
) -> None:
    store, calibration, there, _ = world
    calibration.measure()
    confidences = np.array([calibration.confidences(query, rank(store.view(), query, 10)) for query in there])
    assert confidences.shape == (40, 10)
    assert (confidences[:, 0] > confidences[:, 1:].max(axis=1)).mean() > 0.9
    assert [grade(value) for value in (1.0, MIN_SURE, MIN_LIKELY, MIN_LIKELY - 0.01, 0.0)] == [
        "sure", "sure", "maybe", "unlikely", "unlikely",
    ]  # fmt: skip


def test_the_cut_comes_before_the_first_unlikely_hit_but_never_before_a_sure_one() -> None:
    def cut(*grades: Grade) -> int:
        return Results([Hit("v", Path("v.mp4"), 0, 1, 0.5, (), 1, grade=each) for each in grades]).likely

    assert cut("sure", "maybe", "unlikely", "maybe") == 2
    assert cut("unlikely", "maybe", "unlikely") == 0
    assert cut("unlikely", "sure", "maybe", "unlikely") == 2
    assert (cut("sure", "maybe"), cut("unlikely"), cut()) == (2, 0, 0)


PRESENT = {  # in MiniVTT's bundled clips, and where
    "a fish in the kitchen": "003", "a truck in the kitchen": "015", "a gift among the planets": "017",
    "an axe in the city": "018", "a train in the snow": "026", "a key on the road": "039",
    "a book in the forest": "040", "a duck at the beach": "042", "a dog at the beach": "059",
    "a rocket and a shark in the city": "022", "an egg hides behind a mushroom in the snow": "025",
    "an egg and a basketball on the grass": "004", "an airplane chases a whale at the sea": "007",
    "a rooster in the kitchen": "012", "a castle in the kitchen": "016 054", "a robot and a giraffe on a lawn": "058",
    "a guitar on the beach": "043", "a crown and a diamond in the city": "019", "a frog in the desert": "001",
    "a snowman on the beach": "056", "a helicopter chases a rocket in the snow": "044",
    "a rabbit jumps over a fox in the desert": "052", "a panda and a parrot in the kitchen": "005", "a train": "026",
    "an axe": "018", "a robot": "058", "a rooster": "010 012 045",
}  # fmt: skip
ABSENT = (  # in no clip, nor anything like it
    "a tax declaration", "a surgeon operates on a patient", "a bride throws a bouquet", "a judge in a courtroom",
    "an old man plays the violin", "a choir sings in a cathedral", "a waiter pours red wine",
    "soldiers march with flags", "two sumo wrestlers", "a student types on a laptop",
    "a nurse takes blood from an arm", "a barber shaves a customer", "people vote in an election",
    "a lawyer reads a contract", "a goalkeeper saves a penalty", "a dentist", "a haircut", "a wedding",
    "a microscope in a laboratory", "a newspaper",
)  # fmt: skip


@pytest.fixture(scope="module")
def demo_index(tmp_path_factory: pytest.TempPathFactory) -> VideoIndex:
    index = VideoIndex(tmp_path_factory.mktemp("demo") / "index", model=DEMO)
    index.add(demo_clips(), detail="fine")
    return index


def test_right_hits_in_the_bundled_clips_are_rarely_unlikely(demo_index: VideoIndex) -> None:
    found = {query: demo_index.search(query)[0] for query in PRESENT}
    right = [hit.grade for query, hit in found.items() if hit.title.removeprefix("minivtt-") in PRESENT[query].split()]
    assert len(right) >= 22
    assert right.count("unlikely") <= 1
    assert right.count("sure") >= len(right) / 2


def test_what_is_not_in_the_bundled_clips_is_rarely_sure(demo_index: VideoIndex) -> None:
    answers = [demo_index.search(query) for query in ABSENT]
    assert sum(answer[0].grade == "sure" for answer in answers) <= 3  # 15 %
    assert sum(not answer.convincing for answer in answers) >= 10
    assert all(answer.convincing == (answer.likely > 0) for answer in answers)


def test_an_image_convinces_when_it_is_as_near_as_the_videos_are_to_each_other(
    world: tuple[MemoryStore, Calibration, Floats, Floats],
) -> None:
    store, calibration, _, _ = world
    calibration.measure()
    segment = store.view().segments("3").vectors[0]
    for query, expected in ((segment, 1), (-segment, 0)):
        found = rank(store.view(), query, 10)
        assert max(calibration.confidences(query, found, has_text=False)) == expected


def test_without_calibration_or_videos_nothing_is_claimed() -> None:
    store = MemoryStore(WIDTH)
    empty = Calibration(store)
    assert empty.confidences(np.ones(WIDTH, np.float32), []) == []
    one = np.ones(1, np.float32)
    store.add([(Video("a", 1, 1, 1, 0), Segments(0 * one, one, unit(np.ones((1, WIDTH)))), ())], [])
    assert empty.confidences(unit(np.ones(WIDTH)), rank(store.view(), unit(np.ones(WIDTH)), 10)) == [0]
    store.set_value("calibration", b"damaged")
    assert len(Calibration(store).texts) == 0


def test_thousands_of_near_duplicates_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else 120 sentences would take a minute in a collection of 50,000, most of it spent on one hit each."""
    count, store = 2_000, MemoryStore(WIDTH)
    vectors = unit(np.ones((count, 1, WIDTH)) + 0.01 * np.random.default_rng(0).normal(size=(count, 1, WIDTH)))
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    store.add([(Video(str(n), 1, 1, 1, 0), Segments(zero, one, row), ()) for n, row in enumerate(vectors)], [])
    calibration, view = Calibration(store), store.view()
    calibration.vectors = unit(np.random.default_rng(1).normal(size=(3, WIDTH)))
    read, looked_at = view.segments, list[str]()
    monkeypatch.setattr(ranking, "CALIBRATED_VIDEOS", 100)
    monkeypatch.setattr(type(view), "segments", lambda view, video: looked_at.append(video) or read(video))
    calibration.measure()
    assert len(looked_at) == 3 * 100
    assert len(calibration.texts) == 3


def test_the_background_sentences_are_those_that_confidences_were_measured_with() -> None:
    sentences = background_sentences()
    assert len(set(sentences)) == len(sentences) == 120
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
    assert hashlib.blake2b("\n".join(sentences).encode(), digest_size=8).hexdigest() == "a77a7582fae51601"
