"""8-bit weights: close to float32, also where a few tokens are far larger than the others."""

import json

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
        model.vision_model.encoder.layer[2].mlp.fc1.weight[0].mul_(200)
        model.vision_model.encoder.layer[2].mlp.fc2.weight[:, 0].div_(50)
    CenterCLIP(Backbone(model, tiny.tokenizer(), Preprocess(size=tiny.SIDE))).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def cosine(folder, rgb, **options):
    """Of the vectors in 8 bits to those in float32, without the gate."""
    form = conversion.add_int8(conversion.convert(folder), lambda: rgb[:2], **options)
    mask = np.ones(rgb.shape[:2], dtype=bool)
    vectors = []
    for precision in ("float32", "int8"):
        encoder = OnnxEncoder(folder, frames=rgb.shape[1], precision="float32")
        encoder._form, encoder.precision = form, precision
        vectors.append(encoder.encode_windows(rgb, mask)[0])
    return float((vectors[0] * vectors[1]).sum(-1).mean()), form


QUICK, EXACT = "MatMulIntegerToFloat", "MatMulNBits"


def products(form):
    """The kind of product of every layer of the vision tower, by name."""
    graph = onnx.load(str(form.graph("vision", "int8")), load_external_data=False).graph
    return {each.name.removesuffix("/i"): each.op_type for each in graph.node if each.op_type in (QUICK, EXACT)}


def test_large_tokens_do_not_spoil_the_others(folder, monkeypatch):
    """A layer that one scale for a token would distort has many; the others have the quick product."""
    monkeypatch.setattr(quantise, "VISION_BLOCK", 16)  # several in a layer of this width, as 128 are in a real one's
    rgb = tiny.videos(8, frames=4).numpy()
    ours, form = cosine(folder, rgb)
    kinds = products(form)
    assert len(kinds) >= 4 * tiny.BLOCKS
    assert kinds["vision_model.encoder.layer.2.mlp.fc2"] == EXACT
    assert kinds["vision_model.encoder.layer.3.mlp.fc1"] == QUICK
    for path in form.folder.glob("*int8*"):
        path.unlink()
    monkeypatch.setattr(quantise, "VISION_ERROR", float("inf"))
    plain, form = cosine(folder, rgb)
    assert set(products(form).values()) == {QUICK}
    assert ours > 0.995
    assert 1 - ours < (1 - plain) / 2


@pytest.mark.parametrize(
    ("portable", "exact", "full"), [(True, True, False), (False, False, False), (False, True, True)]
)
def test_quick_products_leave_room_in_16_bits(folder, monkeypatch, portable, exact, full):
    """Where two products of 8-bit numbers are added up in 16 bits, or may be, as without VNNI instructions."""
    monkeypatch.setattr(quantise, "is_exact", lambda: exact)
    _, form = cosine(folder, tiny.videos(2, frames=4).numpy(), portable=portable)
    graph = onnx.load(str(form.graph("vision", "int8"))).graph
    names = {node.input[1] for node in graph.node if node.op_type == QUICK}
    weights = [onnx.numpy_helper.to_array(each) for each in graph.initializer if each.name in names]
    assert weights
    assert all((2 * 255 * int(np.abs(each.astype(int)).max()) >= 2**15) == full for each in weights)
    assert form.portable == (not full)


def test_weights_of_another_processor_are_made_anew_where_they_are_not_exact(folder, monkeypatch):
    """In a cache that machines share."""
    samples = tiny.videos(2, frames=4).numpy
    monkeypatch.setattr(quantise, "is_exact", lambda: True)
    form = conversion.add_int8(conversion.convert(folder), samples, portable=False)
    assert not form.portable
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "_write_int8", lambda *_: pytest.fail("made anew"))
        assert conversion.add_int8(form, samples, portable=False) == form
    monkeypatch.setattr(quantise, "is_exact", lambda: False)
    assert conversion.add_int8(form, samples, portable=False).portable


def test_what_another_process_made_meanwhile_is_taken(folder, monkeypatch):
    before = conversion.convert(folder)
    made = conversion.add_int8(before, tiny.videos(2, frames=4).numpy, portable=True)
    monkeypatch.setattr(conversion, "_write_int8", lambda *_: pytest.fail("made anew"))
    assert not before.has("int8")
    for portable in (True, False):
        assert conversion.add_int8(before, lambda: pytest.fail("decoded"), portable=portable) == made


def test_weights_of_an_older_kind_are_made_anew(folder, tmp_path):
    """Which do not say whether they are portable. What was exported cannot be made anew, and stays."""
    samples = tiny.videos(2, frames=4).numpy
    form = conversion.add_int8(conversion.convert(folder), samples)
    conversion.export_form(form, folder, tmp_path / "exported", ["int8"])
    exported = tmp_path / "exported" / "centerclip.json"
    assert json.loads(exported.read_text())["onnx"]["portable"] is True
    for path in (exported, form.folder / "centerclip.json"):
        settings = json.loads(path.read_text())
        del settings["onnx"]["portable"]
        path.write_text(json.dumps(settings))
    old = conversion.convert(folder)
    assert old.has("float32")
    assert not old.has("int8")
    assert conversion.add_int8(old, samples).has("int8")
    assert conversion.find_form(tmp_path / "exported").has("int8")


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


def test_a_video_and_a_sentence_do_not_depend_on_others(folder):
    conversion.add_int8(conversion.convert(folder), lambda: tiny.videos(2, frames=4).numpy())
    encoder = OnnxEncoder(folder, frames=4, precision="float32").in_precision("int8")
    rgb, sentences = tiny.videos(3, frames=4).numpy(), ["a dog runs", "two cats", "a red boat on the water at night"]
    alone = [encoder.encode_sentences([sentence])[0] for sentence in sentences]
    np.testing.assert_allclose(encoder.encode_sentences(sentences), alone, atol=1e-3)
    mask = np.ones((3, 4), dtype=bool)
    alone = [encoder.encode_windows(rgb[place : place + 1], mask[:1])[0][0] for place in range(3)]
    np.testing.assert_array_equal(encoder.encode_windows(rgb, mask)[0], alone)
