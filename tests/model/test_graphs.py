import json
import subprocess
import sys
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from safetensors.numpy import save_file
from torch.nn.functional import normalize
from transformers import BertConfig, CLIPModel, SiglipModel, VisionTextDualEncoderModel, ViTConfig

from centerclip.errors import WrongWeights
from centerclip.model.attachment import bias_keys, transformer_blocks
from centerclip.model.graphs import (
    DEFAULTS,
    TOWERS,
    Weights,
    cut,
    layout,
    save,
    supports,
    text_graph,
    tower_config,
    vision_graph,
)
from centerclip.model.preprocess import Preprocess

from . import tiny

CLOSE = 1e-5  # of vectors of norm 1
COLOURS = Preprocess().scale_and_shift()
CLASSES = {"clip": CLIPModel, "siglip": SiglipModel, "vision-text-dual-encoder": VisionTextDualEncoderModel}


def clip():
    """Not with the large weights of ``tiny.clip``, which amplify rounding: torch's float32 is 5e-6 off there."""
    return CLIPModel(tiny.clip().config)


def vit():
    vision = ViTConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=48, image_size=32, patch_size=8,
        qkv_bias=False,
    )  # fmt: skip
    text = BertConfig(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=40, vocab_size=600,
        hidden_act="gelu_new",
    )  # fmt: skip
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=20)
    return VisionTextDualEncoderModel(config)


def uneven_siglip():
    """Patches that leave six pixels over at the right and at the bottom, as in SigLIP so400m of 384 pixels."""
    model = tiny.siglip()
    vision = {**model.config.vision_config.to_dict(), "image_size": 30}
    return SiglipModel(transformers.SiglipConfig(vision_config=vision, text_config=model.config.text_config.to_dict()))


MODELS = {"clip": clip, "siglip": uneven_siglip, "dinov2": tiny.dual_encoder, "vit": vit}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each kind of model, in which every weight counts."""
    found = {}
    for kind, make in MODELS.items():
        torch.manual_seed(1)
        model = make()
        with torch.no_grad():
            for parameter in model.parameters():  # many start as 0 or 1: LayerScale, biases, norms
                parameter.add_(torch.randn_like(parameter) * 0.1)
        found[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(found[kind])
    return found


@pytest.fixture(params=MODELS)
def folder(request, folders):
    return folders[request.param]


@cache
def reference(folder):
    """The model in float64."""
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    return CLASSES[kind].from_pretrained(folder, dtype=torch.float32).double().eval()


def run(model, **inputs):
    """What a graph gives, ``[M, ...]``."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    data = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, options).run(None, inputs)[0]


def vision_parts(folder, cuts=(), biased=False):
    """The vision tower in parts."""
    whole = vision_graph(folder, COLOURS)
    onnx.checker.check_model(whole, full_check=True)
    return cut(whole, cuts, layout(config_of(folder)).blocks, biased=biased)


def run_parts(parts, rgb, **bias):
    first, *others = parts
    output = run(first, rgb=rgb)
    for part in others:
        name = next(each.name for each in part.graph.input if each.name.startswith("hidden_"))
        output = run(part, **{name: output}, **bias)
    return output


def vectors_of(folder, rgb, cuts=()):
    return run_parts(vision_parts(folder, cuts), rgb)


def rgb_of(folder, count=3):
    size = layout(config_of(folder)).image_size
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@torch.no_grad()
def image_features(folder, rgb):
    pixels = np.ascontiguousarray((rgb / COLOURS[0] - COLOURS[1]).transpose(0, 3, 1, 2))
    return reference(folder).get_image_features(pixel_values=torch.from_numpy(pixels).double()).pooler_output


@torch.no_grad()
def text_features(folder, ids, mask):
    inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    return reference(folder).get_text_features(**inputs).pooler_output


def distance(vectors, expected):
    """The largest difference of vectors of norm 1."""
    assert vectors.shape == expected.shape
    return float((normalize(torch.from_numpy(vectors).double()) - normalize(expected)).abs().max())


def sentences(end=599):
    """Three sentences of 9, 16 and 4 tokens, with a mask."""
    ids = np.random.default_rng(0).integers(3, 590, (3, 16))
    mask = np.zeros_like(ids)
    for row, length in enumerate((9, 16, 4)):
        ids[row, length - 1 :], mask[row, :length] = end, 1
    return ids, mask


def edited(folder, target, edit):
    """A copy of a model's folder with another config.json."""
    for path in folder.glob("*.safetensors"):
        (target / path.name).write_bytes(path.read_bytes())
    config = config_of(folder)
    edit(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


# ---- the same as transformers -------------------------------------------------------------------------------


def test_vision_tower_equals_transformers(folder):
    rgb = rgb_of(folder)
    assert distance(vectors_of(folder, rgb), image_features(folder, rgb)) < CLOSE


def test_text_tower_equals_transformers(folder):
    ids, mask = sentences()
    graph = text_graph(folder)
    onnx.checker.check_model(graph, full_check=True)
    assert distance(run(graph, input_ids=ids, attention_mask=mask), text_features(folder, ids, mask)) < CLOSE


@pytest.mark.parametrize("cuts", [(1,), (2,), (3,), (1, 2, 3)])
def test_parts_give_what_the_whole_gives(folder, cuts):
    rgb = rgb_of(folder)
    parts = vision_parts(folder, cuts)
    assert len(parts) == len(cuts) + 1
    assert distance(run_parts(parts, rgb), torch.from_numpy(vectors_of(folder, rgb)).double()) < CLOSE


@pytest.mark.parametrize("cut", [1, 3])
def test_bias_is_added_as_in_the_torch_model(folder, cut):
    rgb, vision, shape = rgb_of(folder), reference(folder).vision_model, layout(config_of(folder))
    bias = np.random.default_rng(1).standard_normal((len(rgb), shape.prefix + shape.patches)).astype(np.float32)
    blocks = list(transformer_blocks(vision)[cut:])
    hooks = bias_keys(vision, blocks, lambda: torch.from_numpy(bias).double(), pooling=True)
    expected = image_features(folder, rgb)
    for hook in hooks:
        hook.remove()
    parts = vision_parts(folder, (cut,), biased=True)
    assert distance(run_parts(parts, rgb, bias=bias), expected) < CLOSE
    assert distance(run_parts(parts, rgb, bias=np.zeros_like(bias)), expected) > 100 * CLOSE  # it changes the vectors


def test_part_takes_any_number_of_tokens(folder):
    last = vision_parts(folder, (2,), biased=True)[1]
    shape = layout(config_of(folder))
    hidden = np.random.default_rng(0).standard_normal((2, shape.prefix + 5, shape.width)).astype(np.float32)
    masked = np.concatenate([hidden, hidden[:, -2:]], axis=1)
    bias = np.zeros(masked.shape[:2], dtype=np.float32)
    bias[:, -2:] = -np.inf
    fewer = run(last, hidden_2=hidden, bias=bias[:, :-2])
    assert distance(run(last, hidden_2=masked, bias=bias), torch.from_numpy(fewer).double()) < CLOSE


# ---- layouts on the hub -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_are_those_of_transformers(kind):
    assert DEFAULTS[kind].items() <= transformers.AutoConfig.for_model(kind).to_dict().items()


def test_config_as_openai_wrote_it(folders, tmp_path):
    def edit(config):
        config |= {"text_config_dict": None, "vision_config_dict": None}
        config["text_config"]["eos_token_id"] = 2  # wrong, and means: the token of the largest id
        for name in ("hidden_act", "layer_norm_eps", "model_type"):
            del config["text_config"][name], config["vision_config"][name]

    folder = edited(folders["clip"], tmp_path, edit)
    ids, mask = sentences()
    vectors = run(text_graph(folder), input_ids=ids, attention_mask=mask)
    assert distance(vectors, text_features(folder, ids, mask)) < CLOSE
    rgb = rgb_of(folder)
    assert distance(vectors_of(folder, rgb), image_features(folder, rgb)) < CLOSE


def test_older_key_of_a_config_counts(folders):
    config = config_of(folders["clip"])
    config["vision_config_dict"] = {"hidden_size": 48, "hidden_act": "gelu"}
    with_key = tower_config(config, "vision")
    known = transformers.CLIPConfig(**config).vision_config.to_dict()
    assert {name: with_key[name] for name in DEFAULTS["clip_vision_model"]}.items() <= known.items()
    assert with_key["hidden_size"] == 48


def test_end_token_is_the_first_of_its_id(folders, tmp_path):
    def edit(config):
        config["text_config"]["eos_token_id"] = 7

    folder = edited(folders["clip"], tmp_path, edit)
    ids, mask = sentences(end=7)
    vectors = run(text_graph(folder), input_ids=ids, attention_mask=mask)
    assert distance(vectors, text_features(folder, ids, mask)) < CLOSE


def test_shards_give_the_same_graphs(folders, tmp_path):
    CLIPModel.from_pretrained(folders["clip"]).save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert text_graph(tmp_path) == text_graph(folders["clip"])
    assert vision_graph(tmp_path, COLOURS) == vision_graph(folders["clip"], COLOURS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits(folders, tmp_path, dtype):
    CLIPModel.from_pretrained(folders["clip"]).to(dtype).save_pretrained(tmp_path)
    ids, mask = sentences()
    vectors = run(text_graph(tmp_path), input_ids=ids, attention_mask=mask)
    assert distance(vectors, text_features(tmp_path, ids, mask)) < CLOSE


def test_clip_tower_in_an_older_dual_encoder(folders, tmp_path):
    """Its weights have the name of the tower twice."""
    vision = CLIPModel.from_pretrained(folders["clip"]).config.vision_config
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(vision, vit().config.text_config)
    torch.manual_seed(0)
    VisionTextDualEncoderModel(config).save_pretrained(tmp_path)
    rgb = rgb_of(tmp_path)
    expected = image_features(tmp_path, rgb)
    weights = dict(Weights(tmp_path))
    renamed = {name.replace("vision_model.", "vision_model.vision_model."): array for name, array in weights.items()}
    save_file(renamed, tmp_path / "model.safetensors")
    assert distance(vectors_of(tmp_path, rgb), expected) < CLOSE


# ---- what cannot be written ---------------------------------------------------------------------------------


def test_other_architectures_need_torch(folders):
    assert supports(config_of(folders["clip"])) is None
    vit_bert = config_of(folders["vit"])
    for config in (
        {"model_type": "blip"},
        {},
        {**vit_bert, "text_config": {"model_type": "roberta"}},
        {**vit_bert, "vision_config": {"model_type": "dinov2", "use_swiglu_ffn": True}},
        {**vit_bert, "vision_config": {"model_type": "vit", "hidden_act": "relu"}},
    ):
        assert "needs torch" in supports(config)
    assert set(TOWERS) == set(CLASSES)


def test_wrong_weights_are_named(folders, tmp_path):
    def edit(config):
        config["vision_config"]["num_hidden_layers"] = 5

    with pytest.raises(WrongWeights, match=r"lacks weights .*encoder\.layers\.4\."):
        vision_graph(edited(folders["clip"], tmp_path, edit), COLOURS)
    other = edited(folders["clip"], tmp_path, lambda config: config["vision_config"].update(patch_size=16))
    with pytest.raises(WrongWeights, match=r"patch_embedding\.weight is \[32, 3, 8, 8\]"):
        vision_graph(other, COLOURS)
    kept = {name: array for name, array in Weights(folders["clip"]).items() if not name.endswith("3.mlp.fc2.bias")}
    edited(folders["clip"], tmp_path, lambda config: None)
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(WrongWeights, match=r"lacks weights .*3\.mlp\.fc2\.bias"):
        vision_graph(tmp_path, COLOURS)


def test_weights_elsewhere_are_refused(folders, tmp_path):
    (tmp_path / "config.json").write_text((folders["clip"] / "config.json").read_text())
    with pytest.raises(WrongWeights, match=r"model\.safetensors; .*pip install"):
        text_graph(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"logit_scale": "../elsewhere.safetensors"}}))
    with pytest.raises(WrongWeights, match="does not name the files"):
        text_graph(tmp_path)
    index.unlink()
    (tmp_path / "model.safetensors").write_bytes(b"\x07")
    with pytest.raises(WrongWeights, match="damaged"):
        text_graph(tmp_path)


# ---- files and int8 -----------------------------------------------------------------------------------------


def test_weights_stand_beside_the_graph(folder, tmp_path):
    rgb, path = rgb_of(folder), tmp_path / "vision.onnx"
    (whole,) = vision_parts(folder)
    expected = run(whole, rgb=rgb)
    save(whole, path)
    assert path.stat().st_size < (tmp_path / "vision.onnx.data").stat().st_size / 2
    assert np.array_equal(run(str(path), rgb=rgb), expected)


def test_graphs_are_written_without_torch(folders):
    code = (
        "import sys; import numpy as np; from pathlib import Path\n"
        "from centerclip.model.graphs import text_graph, vision_graph\n"
        "text_graph(Path(sys.argv[1])), vision_graph(Path(sys.argv[1]), (np.ones(3), np.zeros(3)))\n"
        "print(sorted({'torch', 'transformers', 'onnxruntime'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(folders["clip"])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"
