"""Sentences without torch: the same vectors as the model's, or not used at all."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

from centerclip import CenterCLIP, VideoIndex
from centerclip.model.backbone import Backbone
from centerclip.model.preprocess import Preprocess
from centerclip.model.text_encoder import open_text_encoder
from centerclip.search.query import text_encoder_files
from tests.model import tiny
from tests.search.collection import clip

SENTENCES = [
    "a dog", "a dog\u2019s  ball &amp; a cat", "Two men, one of them old, play chess!", "日本 ünïcode", "x " * 200,
]  # fmt: skip


def dual_encoder(folder: Path) -> Path:
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "dog", "two", "men", "chess", "x", "play", "old"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    CenterCLIP(Backbone(tiny.dual_encoder(), fast, Preprocess(size=tiny.SIDE)), frames=4).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["clip", "bert"])
def test_vectors_are_those_of_the_model(kind: str, model: Path, tmp_path: Path) -> None:
    folder = model if kind == "clip" else dual_encoder(tmp_path / "dual")
    encoder = open_text_encoder(folder)
    assert encoder is not None
    whole = CenterCLIP.from_pretrained(folder)
    for sentence in SENTENCES:
        np.testing.assert_allclose(encoder(sentence), whole.encode_text(sentence)[0].numpy(), atol=2e-5)
    assert sorted(Path(path).name for path in text_encoder_files(whole)) == [
        "centerclip.json",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_models_that_it_does_not_know_are_left_to_torch(model: Path, tmp_path: Path) -> None:
    assert open_text_encoder(tmp_path) is None
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    config["model_type"] = config["text_config"]["model_type"] = "siglip"
    (copy / "config.json").write_text(json.dumps(config))
    assert open_text_encoder(copy) is None
    shutil.copy(model / "config.json", copy)
    (copy / "tokenizer.json").unlink()
    assert open_text_encoder(copy) is None


@pytest.mark.parametrize(("difference", "used"), [(0.0, True), (1e-4, False), (5e-4, False)])
def test_a_text_encoder_is_used_only_for_the_same_vectors(
    difference: float, used: bool, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Differences of one value of a vector of norm 1: 5e-4 is a per cent of what a value of CLIP's 512 is."""
    whole = CenterCLIP.from_pretrained(model)

    def encode(texts: list[str]) -> Tensor:
        vectors = CenterCLIP.encode_text(whole, texts).clone()
        vectors[0, 0] += difference
        return vectors

    monkeypatch.setattr(whole, "encode_text", encode)
    assert bool(text_encoder_files(whole)) == used


def test_a_search_imports_neither_torch_nor_transformers_nor_the_database(model: Path, tmp_path: Path) -> None:
    clip(tmp_path / "videos" / "a.mp4", 1)
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(tmp_path / "videos")
    expected = index.search("a dog")[0].score
    code = (
        "import sys; from centerclip import VideoIndex\n"
        f"hits = VideoIndex({str(tmp_path / 'index')!r}).search('a dog')\n"
        "print(hits[0].score, *sorted({'torch', 'transformers', 'lancedb', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    score, *heavy = done.stdout.split()
    assert heavy == []
    assert float(score) == pytest.approx(expected, abs=1e-4)
