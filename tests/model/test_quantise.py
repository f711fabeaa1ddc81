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
    """A model in which one unit of an MLP is huge for some tokens, as in CLIP."""
    monkeypatch.setenv("CENTERCLIP_CACHE", str(tmp_path / "cache"))
    model = tiny.dual_encoder()
    with torch.no_grad():
        for name, parameter in model.vision_model.named_parameters():
            if parameter.dim() > 1 and "embedding" not in name:
                parameter.mul_(4)
        model.vision_model.encoder.layer[2].mlp.fc1.weight[0].mul_(100)
        model.vision_model.encoder.layer[2].mlp.fc2.weight[:, 0].div_(100)
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


def products(form):
    """The operator of every layer of the vision tower, by name."""
    graph = onnx.load(str(form.graph("vision", "int8")), load_external_data=False).graph
    quick = {each.output[0] for each in graph.node if each.op_type == "MatMulInteger"}
    return {
        node.name: "MatMulInteger" if node.input and f"{node.output[0]}/i" in quick else node.op_type
        for node in graph.node
        if ".layer." in node.name and not node.name.endswith((".sum", "/i", "/f", "/s"))
    }


def test_large_tokens_do_not_spoil_the_others(folder, monkeypatch):
    """A layer that one scale would distort has many; the others have the quick product."""
    rgb = tiny.videos(4, frames=4).numpy()
    ours, form = cosine(folder, rgb)
    kinds = products(form)
    assert len(kinds) >= 4 * tiny.BLOCKS
    assert kinds["vision_model.encoder.layer.2.mlp.fc2"] == "MatMulNBits"
    assert kinds["vision_model.encoder.layer.3.mlp.fc1"] == "MatMulInteger"
    for path in form.folder.glob("*int8*"):
        path.unlink()
    monkeypatch.setattr(quantise, "PLAIN_ERROR", float("inf"))
    plain, form = cosine(folder, rgb)
    assert set(products(form).values()) == {"MatMulInteger"}
    assert ours > 0.995
    assert 1 - ours < (1 - plain) / 2


def test_quick_products_leave_room_in_16_bits(folder):
    """Without VNNI instructions two products of 8-bit numbers are added up in 16 bits."""
    _, form = cosine(folder, tiny.videos(2, frames=4).numpy())
    graph = onnx.load(str(form.graph("vision", "int8"))).graph
    names = {node.input[1] for node in graph.node if node.op_type == "MatMulInteger"}
    weights = [onnx.numpy_helper.to_array(each) for each in graph.initializer if each.name in names]
    assert weights
    assert all(2 * 255 * int(np.abs(each.astype(int)).max()) < 2**15 for each in weights)


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
