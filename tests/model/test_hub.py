"""Models of the Hugging Face hub: what is in its cache, what is fetched, and what is said when neither works."""

import json
import shutil
from types import SimpleNamespace
from unittest.mock import MagicMock

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from centerclip import CenterCLIP
from centerclip.model import ModelError, ModelNotFound
from centerclip.model.backbone import open_backbone

from . import tiny

NAME, COMMIT, OTHER_COMMIT = "some/clip", "a" * 40, "b" * 40
PIXELS = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


class Hub:
    """A hub with one model, ``files``, and a cache in the layout of huggingface_hub."""

    def __init__(self, folder):
        self.files, self.cache, self.asked = folder / "remote", folder / "cache", []
        self.error: Exception | None = None
        tiny.clip().save_pretrained(self.files, max_shard_size="200KB")
        tiny.tokenizer().save_pretrained(self.files)
        (self.files / "preprocessor_config.json").write_text(json.dumps(PIXELS))

    def names(self):
        return sorted(path.name for path in self.files.iterdir())

    def put_in_cache(self, *names, commit=COMMIT, ref="main"):
        repository = self.cache / "models--some--clip"
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        (repository / "refs").mkdir(exist_ok=True)
        if ref != commit:  # as the library does it
            (repository / "refs" / ref).write_text(commit)
        for name in names:
            shutil.copy(self.files / name, snapshot / name)
        return snapshot

    def model_info(self, name, *, revision=None, timeout=None):
        if self.error:
            raise self.error
        return SimpleNamespace(sha=COMMIT, siblings=[SimpleNamespace(rfilename=name) for name in self.names()])

    def snapshot_download(self, name, *, revision=None, allow_patterns=None):
        self.asked.append((name, revision, allow_patterns))
        return str(self.put_in_cache(*self.names(), ref=revision or "main"))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub.cache))
    monkeypatch.setattr(
        huggingface_hub.HfApi, "model_info", lambda _api, name, **options: hub.model_info(name, **options)
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


def same_weights(model, other):
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_what_is_whole_in_the_cache_needs_no_hub(hub):
    hub.put_in_cache(*hub.names())
    hub.error = OSError("no connection")
    backbone = open_backbone(NAME)
    assert backbone.preprocess.mean == (0.5, 0.5, 0.5)
    assert same_weights(backbone.model, tiny.clip())
    assert hub.asked == []


LACKING = {
    "preprocessor": (["preprocessor_config.json"], "preprocessor_config.json"),
    "tokenizer": (["tokenizer.json", "tokenizer_config.json"], "tokenizer.json"),
    "a shard": (["model-00002-of-00003.safetensors"], "model-00002-of-00003.safetensors"),
    "all weights": (
        [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json",
        ],
        "model.safetensors",
    ),
}


@pytest.mark.parametrize(("lacking", "named"), LACKING.values(), ids=LACKING)
def test_what_the_cache_lacks_is_fetched(hub, lacking, named):
    hub.put_in_cache(*(name for name in hub.names() if name not in lacking))
    backbone = open_backbone(NAME)
    assert len(hub.asked) == 1
    assert backbone.preprocess.mean == (0.5, 0.5, 0.5)
    assert same_weights(backbone.model, tiny.clip())


@pytest.mark.parametrize(("lacking", "named"), LACKING.values(), ids=LACKING)
def test_without_a_connection_what_the_cache_lacks_is_named(hub, lacking, named):
    hub.put_in_cache(*(name for name in hub.names() if name not in lacking))
    hub.error = OSError("[Errno -2] Name or service not known")
    with pytest.raises(ModelNotFound, match=rf"only partly on this machine \(missing: {named}.*service not known"):
        open_backbone(NAME)


def test_no_connection_and_nothing_in_the_cache(hub):
    hub.error = OSError("[Errno -2] Name or service not known")
    with pytest.raises(
        ModelNotFound, match=r'"some/clip" is not on this machine.*service not known.*--model my-folder'
    ):
        open_backbone(NAME)


def test_a_model_that_was_fetched_opens_without_a_connection(hub):
    open_backbone(NAME)
    hub.error = OSError("no connection")
    open_backbone(NAME)
    assert len(hub.asked) == 1


def test_one_set_of_weights_is_fetched_the_safe_format_where_there_is_one(hub):
    (hub.files / "pytorch_model.bin").write_bytes(b"")
    (hub.files / "tf_model.h5").write_bytes(b"")
    open_backbone(NAME)
    [(name, _, patterns)] = hub.asked
    assert name == NAME
    assert "*.safetensors" in patterns
    assert not any("bin" in pattern or "h5" in pattern for pattern in patterns)


def test_a_revision_is_pinned(hub):
    CenterCLIP.from_pretrained(NAME, revision="v1.0", device="cpu")
    assert [revision for _, revision, _ in hub.asked] == ["v1.0"]
    hub.error = OSError("no connection")
    open_backbone(NAME, revision="v1.0")
    with pytest.raises(ModelNotFound, match=r'"some/clip" at revision "v2\.0" is not on this machine'):
        open_backbone(NAME, revision="v2.0")


def test_a_commit_in_the_cache_is_opened_by_its_hash(hub):
    hub.put_in_cache(*hub.names(), commit=OTHER_COMMIT, ref="old")
    hub.error = OSError("no connection")
    open_backbone(NAME, revision=OTHER_COMMIT)
    with pytest.raises(ModelNotFound):
        open_backbone(NAME)


def test_unknown_revision(hub):
    hub.error = RevisionNotFoundError("404", response=MagicMock(status_code=404))
    with pytest.raises(ModelNotFound, match='no revision "v9" of "some/clip"'):
        open_backbone(NAME, revision="v9")


def test_a_revision_of_local_files_is_refused(tmp_path):
    with pytest.raises(ModelError, match="revision"):
        open_backbone(tmp_path, revision="main")
    with pytest.raises(ModelError, match="revision"):
        open_backbone("demo", revision="main")


def test_unknown_hub_name(hub):
    hub.error = RepositoryNotFoundError("404", response=MagicMock(status_code=404))
    with pytest.raises(ModelNotFound, match="no such model on the Hugging Face hub"):
        open_backbone("openai/no-such-clip")
