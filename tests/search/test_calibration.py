"""An honest "nothing convincing found"."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from centerclip.search.ranking import MIN_CONFIDENCE, Calibration, background_sentences, rank
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
        store.add([(Video(str(topic), 4, 1, 1, 0), Segments(times, times + 1, about(np.full(4, topic), 0.8)))], [])
    calibration = Calibration(Path("/not/there"), WIDTH)
    calibration.vectors = about(random.integers(0, 80, len(background_sentences())), 0.8)
    return store, calibration, about(np.arange(40), 0.8), about(np.arange(40, 80), 0.8)


def test_what_is_there_convinces_and_what_is_not_does_not(
    world: tuple[MemoryStore, Calibration, Floats, Floats], tmp_path: Path
) -> None:
    store, calibration, there, absent = world
    calibration.path = tmp_path / "calibration.npz"
    calibration.measure(store.view())
    again = Calibration(tmp_path, WIDTH)  # it is kept

    def share_convincing(queries: Floats) -> float:
        confidences = [again.confidence(query, rank(store.view(), query, 10)) for query in queries]
        return float(np.mean(np.array(confidences) >= MIN_CONFIDENCE))

    assert share_convincing(there) >= 0.75
    assert share_convincing(absent) <= 0.2


def test_an_image_convinces_when_it_is_as_near_as_the_videos_are_to_each_other(
    world: tuple[MemoryStore, Calibration, Floats, Floats], tmp_path: Path
) -> None:
    store, calibration, _, _ = world
    calibration.path = tmp_path / "calibration.npz"
    calibration.measure(store.view())
    segment = store.view().segments("3").vectors[0]
    for query, expected in ((segment, 1), (-segment, 0)):
        found = rank(store.view(), query, 10)
        assert calibration.confidence(query, found, has_text=False) == expected


def test_without_calibration_or_videos_nothing_is_claimed(tmp_path: Path) -> None:
    empty = Calibration(tmp_path, WIDTH)
    assert empty.confidence(np.ones(WIDTH, np.float32), []) == 0
    (tmp_path / "calibration.npz").write_bytes(b"damaged")
    assert len(Calibration(tmp_path, WIDTH).texts) == 0


def test_the_background_sentences_are_those_that_confidences_were_measured_with() -> None:
    sentences = background_sentences()
    assert len(set(sentences)) == len(sentences) == 120
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
    assert hashlib.blake2b("\n".join(sentences).encode(), digest_size=8).hexdigest() == "a77a7582fae51601"
