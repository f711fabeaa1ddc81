"""Every format that people have CLIP in opens to the same model, and what cannot be opened says why."""

import copy
import json

import pytest
import torch
from transformers import CLIPConfig

from centerclip import CenterCLIP
from centerclip.model import ModelError, ModelNotFound, NotADualEncoder, UntrustedFile, WrongWeights, checkpoints
from centerclip.model.backbone import open_backbone
from centerclip.model.tokenizer import clip_tokenizer

from . import tiny

SENTENCES = ["a photo of a cat", "a rocket flies up at night, then a cat walks across the grass"]


@pytest.fixture(scope="module")
def original():
    return tiny.clip(width=64, vocabulary=49408)


@pytest.fixture(scope="module")
def expected(original):
    return vectors(original)


@torch.no_grad()
def vectors(model):
    """Image and sentence vectors straight from transformers."""
    tokens = clip_tokenizer()(SENTENCES, padding=True, return_tensors="pt")
    pixels = tiny.center_clip().preprocess(tiny.videos()).flatten(0, 1)
    return torch.cat(
        [model.get_image_features(pixel_values=pixels).pooler_output, model.get_text_features(**tokens).pooler_output]
    )


def equal(path, expected, **options):
    return torch.allclose(vectors(open_backbone(path, **options).model), expected, atol=1e-4)


def test_openai_state_dict(tmp_path, original, expected):
    path = tmp_path / "ViT-tiny.pt"
    torch.save(tiny.openai_weights(original), path)
    assert equal(path, expected)


def test_fine_tuned_checkpoint_with_prefixes_and_half_precision(tmp_path, original):
    weights = {f"module.clip.{name}": value.half() for name, value in tiny.openai_weights(original).items()}
    weights["module.loss.weight"] = torch.ones(3)
    path = tmp_path / "pytorch_model.bin.4"
    torch.save({"epoch": 4, "state_dict": weights, "optimizer": {"lr": 1e-5}}, path)
    assert equal(path, vectors(copy.deepcopy(original).half().float()))


class Script(torch.nn.Module):
    """Just enough to be a TorchScript archive with OpenAI's names."""

    def __init__(self, weights):
        super().__init__()
        for name, value in weights.items():
            *path, last = name.split(".")
            place = self
            for part in path:
                if not hasattr(place, part):
                    place.add_module(part, torch.nn.Module())
                place = getattr(place, part)
            place.register_buffer(last, value)

    def forward(self, x):
        return x


def test_torchscript_archives_need_a_known_hash_or_trust(tmp_path, original, expected, monkeypatch):
    path = tmp_path / "ViT-B-32.pt"
    torch.jit.save(torch.jit.script(Script(tiny.openai_weights(original))), path)
    with pytest.raises(UntrustedFile, match=r"runs code when opened.*trust_torchscript=True"):
        open_backbone(path)
    assert equal(path, expected, trust_torchscript=True)
    import hashlib

    monkeypatch.setitem(checkpoints.PUBLISHED, hashlib.sha256(path.read_bytes()).hexdigest(), "this one")
    assert equal(path, expected)


def test_a_pickle_with_code_inside_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    path = tmp_path / "evil.pt"
    torch.save({"state_dict": Evil()}, path)
    with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
        open_backbone(path)


def test_clip4clip_temporal_head(tmp_path, original):
    from centerclip.model import TemporalTransformer

    torch.manual_seed(3)
    head = TemporalTransformer(64, layers=2, heads=1, positions=20)
    weights = tiny.openai_weights(original)
    weights["text_projection"] = torch.randn(64, 64) * 0.1
    weights["visual.proj"] = torch.randn(64, 64) * 0.1
    checkpoint = {f"clip.{name}": value for name, value in weights.items()}
    checkpoint["frame_position_embeddings.weight"] = head.positions.weight
    names = {"self_attn": "attn", "norm": "ln_", "linear1": "mlp.c_fc", "linear2": "mlp.c_proj"}
    for name, value in head.state_dict().items():
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            for ours, theirs in names.items():
                rest = rest.replace(ours, theirs)
            checkpoint[f"transformerClip.resblocks.{number}.{rest}"] = value
    path = tmp_path / "clip4clip.bin"
    torch.save(checkpoint, path)
    model = CenterCLIP.from_pretrained(path, device="cpu")
    some = torch.randn(2, 5, 64)
    assert torch.allclose(model.temporal(some), head(some), atol=1e-5)
    assert CenterCLIP.from_pretrained(path, temporal="none", device="cpu").temporal is None
    model.save_pretrained(tmp_path / "saved")
    again = CenterCLIP.from_pretrained(tmp_path / "saved", device="cpu")
    assert torch.equal(again.temporal(some), model.temporal(some))


@pytest.mark.parametrize("kind", ["clip", "siglip", "dual"])
@pytest.mark.parametrize("setting", ["none", "B2-4,9", "spectral[sigma=median]:B2-4,9", "temporal-shift"])
def test_folders_round_trip(tmp_path, kind, setting):
    source = {"clip": tiny.clip, "siglip": tiny.siglip, "dual": tiny.dual_encoder}[kind]()
    source.save_pretrained(tmp_path / "source")
    tiny.tokenizer().save_pretrained(tmp_path / "source")
    model = CenterCLIP.from_pretrained(tmp_path / "source", clustering=setting, frames=12, max_tokens=16, device="cpu")
    model.save_pretrained(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "preprocessor_config.json",
        "centerclip.json",
    } <= names
    assert json.loads((tmp_path / "saved" / "centerclip.json").read_text())["clustering"] == setting
    again = CenterCLIP.from_pretrained(tmp_path / "saved", device="cpu")
    assert str(again.clustering) == setting
    assert (again.frames, again.max_tokens, again.rule) == (12, 16, "mean")
    assert again.preprocess == model.preprocess
    video = tiny.videos(1)[0]
    assert torch.equal(again.encode_video(video).segments, model.encode_video(video).segments)
    assert torch.equal(again.encode_text(SENTENCES), model.encode_text(SENTENCES))
    assert len(model.encode_video(video).segments) == model.segments
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_settings_of_folders_that_say_words_are_read(tmp_path):
    tiny.center_clip(max_tokens=16).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "centerclip.json").read_text())
    settings["words"] = settings.pop("max_tokens")  # as older versions wrote it
    (tmp_path / "centerclip.json").write_text(json.dumps(settings))
    assert CenterCLIP.from_pretrained(tmp_path, device="cpu").max_tokens == 16


def test_the_protocol_is_saved_and_read_back(tmp_path):
    tiny.center_clip(protocol="published").save_pretrained(tmp_path)
    assert CenterCLIP.from_pretrained(tmp_path, device="cpu").protocol == "published"
    assert CenterCLIP.from_pretrained(tmp_path, protocol="clean", device="cpu").protocol == "clean"
    settings = json.loads((tmp_path / "centerclip.json").read_text())
    del settings["protocol"]  # as older versions wrote it
    (tmp_path / "centerclip.json").write_text(json.dumps(settings))
    assert CenterCLIP.from_pretrained(tmp_path, device="cpu").protocol == "clean"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("frames", "12", 'a whole number from 1 on, not "12"'),
        ("frames", 0, "a whole number from 1 on, not 0"),
        ("frames", True, "a whole number from 1 on, not true"),
        ("max_tokens", [16], r"a whole number from 1 on, not \[16\]"),
        ("similarity", "cosine", '"mean" or "renormalise", not "cosine"'),
        ("protocol", 3, '"published" or "clean", not 3'),
        ("clustering", 49, "a string such as"),
        ("clustering", "B2-4", "B2-4"),
        ("clustering", "B2-5,9", "12 frames cannot be cut into 5"),
        ("clustering", "B40-4,9", "the model has 4 blocks"),
        ("temporal", True, "an object of whole numbers: width, layers, heads, positions, not true"),
        ("temporal", {"width": "wide"}, "an object of whole numbers"),
        ("temporal", {"wide": 24}, "temporal.safetensors does not fit"),
        ("chooser", 1, "the name of a function, not 1"),
    ],
)
def test_a_wrong_value_in_centerclip_json_is_named(tmp_path, key, value, message):
    tiny.center_clip("B2-4,9").save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "centerclip.json").read_text())
    (tmp_path / "centerclip.json").write_text(json.dumps({**settings, key: value}))
    with pytest.raises(ModelError, match=message) as caught:
        CenterCLIP.from_pretrained(tmp_path, device="cpu")
    assert "centerclip.json" in str(caught.value)
    assert key in str(caught.value)


def test_more_tokens_than_the_text_tower_takes_are_refused():
    with pytest.raises(ModelError, match="max_tokens = 500, but the text tower takes at most 77"):
        tiny.center_clip(max_tokens=500)


def last_tokens(tokens, k):
    """A method of one's own."""
    return torch.arange(tokens.shape[1] - k, tokens.shape[1], device=tokens.device).expand(len(tokens), k)


def test_a_model_with_a_method_of_ones_own_opens_with_it_or_not_at_all(tmp_path):
    video = tiny.videos(1)[0]
    model = tiny.center_clip("B2-4,9", chooser=last_tokens)
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="a clustering method of its own, last_tokens"):
        CenterCLIP.from_pretrained(tmp_path, device="cpu")
    again = CenterCLIP.from_pretrained(tmp_path, chooser=last_tokens, device="cpu")
    assert torch.equal(again.encode_video(video).segments, model.encode_video(video).segments)
    assert str(CenterCLIP.from_pretrained(tmp_path, clustering="B2-3,9", device="cpu").clustering) == "B2-3,9"


def test_a_saved_file_is_a_standard_folder_with_the_whole_vocabulary(tmp_path, original, expected):
    torch.save(tiny.openai_weights(original), tmp_path / "clip.pt")
    CenterCLIP.from_pretrained(tmp_path / "clip.pt", device="cpu").save_pretrained(tmp_path / "folder")
    from transformers import AutoTokenizer, CLIPModel

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert tokenizer("a photo of a cat")["input_ids"] == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert torch.allclose(vectors(CLIPModel.from_pretrained(tmp_path / "folder")), expected, atol=1e-5)


def test_preprocessing_is_read_from_the_folder(tmp_path):
    tiny.clip().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    config = {"size": {"height": 32, "width": 32}, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    preprocess = open_backbone(tmp_path).preprocess
    assert (preprocess.filter, preprocess.crop, preprocess.mean) == ("bilinear", False, (0.5, 0.5, 0.5))


# ---- what cannot be opened ------------------------------------------------------------------------------------


def test_nothing_there():
    with pytest.raises(ModelNotFound, match=r"no file or folder no-such-thing.*owner/name"):
        open_backbone("no-such-thing")
    with pytest.raises(ModelNotFound, match=r"no file or folder models/clip\.pt"):
        open_backbone("models/clip.pt")


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ModelNotFound, match=r"not a model folder: it has no config\.json"):
        open_backbone(tmp_path)


def test_another_kind_of_model(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(NotADualEncoder, match="holds a model of type 'bert'"):
        open_backbone(tmp_path)


def test_missing_weights(tmp_path):
    from safetensors.torch import load_file, save_file

    tiny.clip().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WrongWeights, match=r"lacks weights that config.json asks for: visual_projection.weight"):
        open_backbone(tmp_path)


def test_wrong_shapes(tmp_path):
    tiny.clip().save_pretrained(tmp_path)
    config = CLIPConfig.from_pretrained(tmp_path)
    config.projection_dim = 12
    config.save_pretrained(tmp_path)
    with pytest.raises(WrongWeights, match=r"projection.weight is \[24, 32\], but config.json says \[12, 32\]"):
        open_backbone(tmp_path)


def test_damaged_weights(tmp_path):
    tiny.clip().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(WrongWeights, match=r"damaged|cannot be opened"):
        open_backbone(tmp_path)
    path = tmp_path / "weights.pt"
    path.write_bytes(b"not weights either")
    with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
        open_backbone(path)


def test_files_that_hold_something_else(tmp_path, original):
    path = tmp_path / "weights.pt"
    torch.save([1, 2, 3], path)
    with pytest.raises(WrongWeights, match="holds a list"):
        open_backbone(path)
    torch.save({}, path)
    with pytest.raises(WrongWeights, match="holds no weights"):
        open_backbone(path)
    torch.save({"fc.weight": torch.zeros(3)}, path)
    with pytest.raises(NotADualEncoder, match="is not a CLIP; a CLIP with a vision transformer is needed"):
        open_backbone(path)
    weights = tiny.openai_weights(original)
    del weights["transformer.resblocks.1.ln_1.bias"]
    torch.save(weights, path)
    with pytest.raises(WrongWeights, match=r"lacks weights.*: text_model.encoder.layers.1.layer_norm1.bias"):
        open_backbone(path)
    weights = tiny.openai_weights(original)
    weights["visual.ln_post.bias"] = torch.zeros(5)
    torch.save(weights, path)
    with pytest.raises(WrongWeights, match=r"post_layernorm.bias is \[5\], expected \[64\]"):
        open_backbone(path)


def test_weights_without_their_folder(tmp_path):
    tiny.clip().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="pass its folder"):
        open_backbone(tmp_path / "model.safetensors")


def test_compiling_for_a_cpu_is_refused(tmp_path):
    tiny.clip().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="for a GPU"):
        CenterCLIP.from_pretrained(tmp_path, device="cpu", compile=True)
