"""Threads decode, batches encode: what comes out does not depend on how long each file takes."""

import threading
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from centerclip.model.pipeline import (
    Deliver,
    Window,
    decode_batches,
    default_decoders,
    encode_as_decoded,
    encode_in_order,
    encode_segments,
)
from centerclip.video import UnreadableVideo, read_frames
from tests.video.clips import make_clip

from . import tiny

FRAMES = 4


@pytest.fixture(scope="module")
def model():
    return tiny.center_clip("B2-2,5", frames=FRAMES)


def window(number: int) -> Window:
    return Window(np.random.default_rng(number).integers(0, 255, (FRAMES, tiny.SIDE, tiny.SIDE, 3), dtype=np.uint8))


def decode(item: int, deliver: Deliver) -> str:
    if item % 5 == 3:
        raise UnreadableVideo(f"{item}.mp4", "it is damaged")
    deliver(0, window(item))
    return f"info {item}"


def vectors(model, item: int) -> np.ndarray:
    with model.inference():
        return model.video_features(torch.from_numpy(window(item).rgb[None]))[0][0].numpy()


@pytest.mark.parametrize("decoders", [1, 3])
def test_results_come_in_order_and_a_bad_file_is_one_of_them(model, decoders):
    results = list(encode_in_order(model, range(11), decode, batch_size=4, decoders=decoders))
    assert [each.item for each in results] == list(range(11))
    for each in results:
        if each.item % 5 == 3:
            assert isinstance(each.error, UnreadableVideo)
            assert each.info is None
        else:
            assert (each.error, each.info) == (None, f"info {each.item}")
            assert np.allclose(each.segments, vectors(model, each.item), atol=1e-6)
            assert each.mask.all()


def test_batches_are_the_same_whichever_file_is_decoded_first():
    """The first item of each batch ends only after the last one has."""
    ended = {item: threading.Event() for item in range(8)}

    def decode_backwards(item: int, deliver: Deliver) -> None:
        if item % 4 == 0:
            assert ended[item + 3].wait(60)
        ended[item].set()

    batches = decode_batches(range(8), decode_backwards, batch_size=4, decoders=2)
    assert [[each.item for each in batch] for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_no_more_is_decoded_ahead_than_fits():
    started: list[int] = []
    batches = decode_batches(range(1000), lambda item, deliver: started.append(item), batch_size=2, decoders=3)
    next(batches)
    batches.close()
    assert len(started) <= 2 + 3 + 4 + 3  # one batch taken, threads, two batches ahead, and what a thread has begun


@pytest.mark.parametrize("batch_size", [2, 64])  # both readings in different batches, and in one
def test_windows_are_encoded_as_they_come_and_those_of_a_second_reading_count(model, batch_size, monkeypatch):
    if batch_size == 64:
        monkeypatch.setattr("centerclip.model.pipeline._Decoding.nothing_decoded", lambda decoding: False)

    def decode_twice(item: int, deliver: Deliver) -> int:
        for number in range(5):
            deliver(number, window(100 + number))
        for number in range(3):  # the file turned out to be damaged, and shorter
            deliver(number, window(10 * item + number))
        return 3

    for each in encode_as_decoded(model, range(4), decode_twice, batch_size=batch_size, decoders=2):
        expected = np.concatenate([vectors(model, 10 * each.item + number) for number in range(3)])
        assert np.allclose(each.segments, expected, atol=1e-6)


@pytest.mark.parametrize(("on_gpu", "ranks", "threads"), [(False, 1, 4), (False, 8, 3), (True, 1, 32), (True, 8, 6)])
def test_ranks_of_one_machine_divide_the_cores_that_decode(model, on_gpu, ranks, threads, monkeypatch):
    monkeypatch.setattr("centerclip.parallel.usable_cores", lambda: 48)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(type(model), "on_gpu", on_gpu)
    assert default_decoders(model) == threads


@pytest.mark.parametrize("setting", ["B1-6,12 B3-2,7", "token-shift"])
def test_segments_that_cannot_be_encoded_alone_fill_windows(setting):
    model = tiny.center_clip(setting)
    rgb, most = np.concatenate([window(number).rgb for number in range(3)]), 12 // model.segments
    lengths = [1] * 12 if most == 1 else [2, most, 1]
    rows = list(range(12)) if most == 1 else [0] * 3 + [1] * 3 + list(range(2, 8)) + [8] * 12
    assert model.encode_segments(rgb[: sum(lengths)], lengths) is None
    vectors = encode_segments(model, rgb[: sum(lengths)], lengths)
    windows = rgb[rows].reshape(-1, 12, *rgb.shape[1:])
    expected = model.encode_windows(windows, np.ones(windows.shape[:2], dtype=bool))[0].reshape(-1, model.width)
    assert np.allclose(vectors, expected[: len(lengths)], atol=1e-6)


def test_a_bug_is_raised_and_not_taken_for_a_bad_file(model):
    def wrong(item: int, deliver: Deliver) -> None:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        list(encode_in_order(model, range(3), wrong, batch_size=2, decoders=2))


def test_whoever_stops_early_leaves_no_threads_behind(model):
    before = threading.active_count()
    results = encode_as_decoded(model, range(10_000), decode, batch_size=2, decoders=3)
    next(results)
    results.close()
    assert threading.active_count() == before


def test_one_bad_video_of_several(model, tmp_path):
    (tmp_path / "bad.mp4").write_text("no video")
    good = window(1).rgb
    results = list(model.iter_videos([good, tmp_path / "bad.mp4", good]))
    assert [type(each).__name__ for each in results] == ["EncodedVideo", "NotAVideo", "EncodedVideo"]
    with pytest.raises(type(results[1])):
        model.encode_videos([good, tmp_path / "bad.mp4"])


@pytest.mark.parametrize("half", [True, False])
def test_half_precision_is_for_a_gpu_and_can_be_turned_off(model, monkeypatch, half):
    asked = []
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype, enabled: asked.append(enabled) or nullcontext())
    with model.inference(half=half):
        pass
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    with model.inference(half=half):
        pass
    assert asked == [False, half]


@pytest.mark.parametrize("change", [{}, {"short_side": 2 * tiny.SIDE}, {"crop": False}])
def test_frames_are_resized_and_cropped_once(tmp_path, change):
    """As a model does that gets the whole frames, whether it crops at once, resizes first, or squashes."""
    model = tiny.center_clip("B2-2,5", frames=FRAMES)
    model.preprocess = replace(model.preprocess, **change)
    path = make_clip(tmp_path / "clip.mp4", frames=8, size=(160, 96))
    frames = read_frames(path, FRAMES, short_side=model.preprocess.read_size)
    squares = torch.from_numpy(model.preprocess.to_square(frames.rgb))
    with model.inference():
        expected = model.video_features(model.preprocess.normalise(squares)[None])[0][0]
    assert torch.allclose(model.encode_video(path).segments, expected, atol=1e-6)
    for rgb in (frames.rgb, torch.from_numpy(frames.rgb)):
        assert torch.allclose(model.encode_video(rgb).segments, expected, atol=1e-6)
