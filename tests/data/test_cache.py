"""Kept features come back exactly, belong to one model and setting, and damage means computing again."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from centerclip.data import cache
from centerclip.data.cache import FeatureCache, content_key


@pytest.fixture
def features() -> dict[str, Tensor]:
    return {
        "segments": torch.randn(4, 8),
        "half": torch.randn(3).bfloat16(),
        "spans": torch.arange(8.0).reshape(4, 2).T,
    }


def equal(one: dict[str, Tensor] | None, other: dict[str, Tensor]) -> bool:
    return one is not None and one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_features_come_back_exactly(tmp_path: Path, features: dict[str, Tensor]) -> None:
    store = FeatureCache(tmp_path, model="m", setting="s")
    assert store.get("video") is None
    store.put("video", features)
    assert equal(FeatureCache(tmp_path, model="m", setting="s").get("video"), features)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [store.path("video").name]


def test_models_and_settings_keep_their_own(tmp_path: Path, features: dict[str, Tensor]) -> None:
    FeatureCache(tmp_path, model="m", setting="s").put("video", features)
    for model, setting in (("m", "t"), ("n", "s"), ("ms", ""), ("m\ns", "")):
        assert FeatureCache(tmp_path, model=model, setting=setting).get("video") is None
    assert FeatureCache(tmp_path, model="m", setting="s").get("../video") is None


def test_computing_happens_once(tmp_path: Path, features: dict[str, Tensor]) -> None:
    calls = []

    def compute() -> dict[str, Tensor]:
        calls.append(1)
        return features

    store = FeatureCache(tmp_path, model="m", setting="s")
    for _ in range(3):
        assert equal(store.get_or_compute("video", compute), features)
    assert len(calls) == 1


def test_any_damage_is_noticed_and_computed_again(tmp_path: Path, features: dict[str, Tensor]) -> None:
    store = FeatureCache(tmp_path, model="m", setting="s")
    store.put("video", features)
    path = store.path("video")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 16
    for damaged in (whole[:-5], whole[: len(whole) // 2], b"", b"\xff" * 40, bytes(flipped)):
        path.write_bytes(damaged)
        assert store.get("video") is None
        assert equal(store.get_or_compute("video", lambda: features), features)
        assert equal(store.get("video"), features)


def test_an_entry_of_another_video_in_its_place_is_not_taken(tmp_path: Path, features: dict[str, Tensor]) -> None:
    store = FeatureCache(tmp_path, model="m", setting="s")
    store.put("one", features)
    store.path("two").parent.mkdir(parents=True, exist_ok=True)
    store.path("one").rename(store.path("two"))
    assert store.get("two") is None


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(cache, "save_file", full)
    store = FeatureCache(tmp_path, model="m", setting="s")
    with pytest.raises(OSError, match="no space"):
        store.put("video", {"x": torch.zeros(1)})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [10, 3 * 2**10])
def test_content_keys_follow_the_content_and_not_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cache, "WHOLE_BYTES", 2**10)
    monkeypatch.setattr(cache, "SAMPLE_BYTES", 2**6)
    content = os.urandom(size)
    versions = (content, content[:-1] + bytes([content[-1] ^ 1]), bytes([content[0] ^ 1]) + content[1:], content + b"x")
    keys = []
    for number, version in enumerate(versions):
        (tmp_path / f"{number}.mp4").write_bytes(version)
        keys.append(content_key(tmp_path / f"{number}.mp4"))
    assert len(set(keys)) == 4
    (tmp_path / "moved.mkv").write_bytes(content)
    assert content_key(tmp_path / "moved.mkv") == keys[0]
