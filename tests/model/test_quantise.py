"""8-bit weights: close to float32, also where a few tokens are far larger than the others."""

import numpy as np
import onnx
import pytest
import torch

from centerclip import CenterCLIP
from centerclip.model import conversion, quantise
from centerclip.model.backbone import Backbone
from centerclip.model.engine import OnnxEncoder
from centerclip.model.preprocess import Preprocess

from . import tiny


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model in whose middle one unit of an MLP is huge for some tokens, as in CLIP."""
    monkeypatch.setenv("CENTERCLIP_CACHE", str(tmp_path / "cache"))
    model = tiny.dual_encoder()
    with torch.no_grad():
        for name, parameter in model.vision_model.named_parameters():
            if parameter.dim() > 1 and "embedding" not in name:
                parameter.mul_(4)
        model.vision_model.encoder.layer[1].mlp.fc1.weight[0].mul_(100)
        model.vision_model.encoder.layer[1].mlp.fc2.weight[:, 0].div_(100)
    CenterCLIP(Backbone(model, tiny.tokenizer(), Preprocess(size=tiny.SIDE))).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def cosine(folder, rgb):
    """Of the vectors in 8 bits to those in float32, without the gate."""
    form = conversion.add_int8(conversion.convert(folder), lambda: rgb[:2])
    mask = np.ones(rgb.shape[:2], dtype=bool)
    vectors = []
    for precision in ("float32", "int8"):
        encoder = OnnxEncoder(folder, frames=rgb.shape[1], precision="float32")
        encoder._form, encoder.precision = form, precision
        vectors.append(encoder.encode_windows(rgb, mask)[0])
    return float((vectors[0] * vectors[1]).sum(-1).mean()), form


def operators(form):
    graph = onnx.load(str(form.graph("vision", "int8")), load_external_data=False).graph
    return [node.op_type for node in graph.node]


def test_large_tokens_do_not_spoil_the_others(folder, monkeypatch):
    rgb = tiny.videos(4, frames=4).numpy()
    ours, form = cosine(folder, rgb)
    assert "ReduceMax" in operators(form)  # tokens have scales of their own where they need them
    assert operators(form).count("MatMulInteger") >= 4 * tiny.BLOCKS
    for path in form.folder.glob("*int8*"):
        path.unlink()
    monkeypatch.setattr(quantise, "PLAIN_ERROR", float("inf"))
    plain, form = cosine(folder, rgb)
    assert "ReduceMax" not in operators(form)
    assert ours > 0.995
    assert 1 - ours < (1 - plain) / 2


def test_what_8_bits_would_distort_stays_in_float32(folder, monkeypatch):
    monkeypatch.setattr(quantise, "PLAIN_ERROR", 0.0)
    monkeypatch.setattr(quantise, "MAX_ERROR", 0.0)
    rgb = tiny.videos(2, frames=4).numpy()
    value, form = cosine(folder, rgb)
    assert value == pytest.approx(1, abs=1e-5)
    assert "MatMulInteger" not in operators(form)


def test_smoothing_changes_nothing_but_rounding(folder, monkeypatch):
    monkeypatch.setattr(quantise._Tower, "replace", lambda self, products: None)
    value, _ = cosine(folder, tiny.videos(2, frames=4).numpy())
    assert value == pytest.approx(1, abs=1e-5)


def test_word_vectors_take_8_bits_and_stay_close(folder):
    sentences = ["a dog runs", "two cats", "a red boat on the water at night"]
    form = conversion.add_int8(conversion.convert(folder), lambda: tiny.videos(2, frames=4).numpy())
    exact = OnnxEncoder(folder, frames=4, precision="float32")
    lower = exact.in_precision("int8")
    assert (exact.encode_sentences(sentences) * lower.encode_sentences(sentences)).sum(-1).min() > 0.999
    graph = onnx.load(str(form.graph("text", "int8")), load_external_data=False).graph
    tables = {each.name: each.data_type for each in graph.initializer if "word_embeddings" in each.name}
    assert sorted(tables.values()) == [onnx.TensorProto.FLOAT, onnx.TensorProto.INT8]  # scales, and whole numbers
