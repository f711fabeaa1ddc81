"""Newer backbones, from small configurations of the real classes; and the list of models that are known to be good."""

import json

import numpy as np
import pytest
import torch
from transformers import (
    BertTokenizer,
    ChineseCLIPConfig,
    ChineseCLIPModel,
    CLIPConfig,
    CLIPModel,
    MetaClip2Config,
    MetaClip2Model,
    SiglipConfig,
    SiglipModel,
)
from typer.testing import CliRunner

from centerclip import CenterCLIP, VideoIndex
from centerclip.cli import app
from centerclip.model import NotADualEncoder, hub, open_encoder
from centerclip.model.known import KNOWN_MODELS, SHORT_NAMES, full_name

from . import tiny
from .test_token_ids import siglip2

TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
VISION = {**TOWER, "num_hidden_layers": tiny.BLOCKS, "image_size": tiny.SIDE, "patch_size": tiny.PATCH}
TEXT = {**TOWER, "num_hidden_layers": 2, "vocab_size": 600, "max_position_embeddings": 64}


def preprocessing(folder):
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 32, "width": 32}}))


def check_clustering(model):
    """Clustering changes the vectors of the frames, one a segment, and comes off again."""
    videos = list(tiny.videos(2))
    plain = model.encode_videos(videos)
    model.set_clustering("B2-4,9")
    clustered = model.encode_videos(videos)
    assert clustered[0].segments.shape == (4, model.width)
    assert not torch.allclose(clustered[0].vector, plain[0].vector, atol=1e-6)
    assert torch.isfinite(clustered[0].segments).all()


@pytest.mark.parametrize("tokenizer_class", ["Siglip2Tokenizer", "GemmaTokenizer"])
def test_siglip_2_takes_small_letters_padded_to_64(tmp_path, tokenizer_class):
    torch.manual_seed(0)
    siglip2(tmp_path, "right")
    SiglipModel(SiglipConfig(vision_config=VISION, text_config=TEXT)).save_pretrained(tmp_path)  # config.json of both
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": tokenizer_class}))
    preprocessing(tmp_path)
    model = CenterCLIP.from_pretrained(tmp_path, device="cpu")
    ids = model.tokenize(["A Dog", "a dog"])
    assert ids["input_ids"].shape == (2, 64)
    assert ids["attention_mask"].min() == 1
    encoder = open_encoder(tmp_path, engine="onnxruntime", precision="float32")
    for each in (model, encoder):
        first, second, other = each.encode_sentences(["A Dog", "a dog", "a day"])
        assert np.array_equal(first, second)
        assert not np.allclose(first, other, atol=1e-4)
    check_clustering(model)


def test_siglip_2_of_any_shape_names_another(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "siglip2"}))
    with pytest.raises(NotADualEncoder, match="take one of a fixed size: --model google/siglip2-base-patch16-224"):
        CenterCLIP.from_pretrained(tmp_path)


def test_chinese_clip(tmp_path):
    torch.manual_seed(0)
    config = ChineseCLIPConfig(projection_dim=24, vision_config=VISION, text_config=TEXT)
    ChineseCLIPModel(config).save_pretrained(tmp_path)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"一只狗在海滩上跑猫"]
    BertTokenizer(vocab={token: place for place, token in enumerate(tokens)}).save_pretrained(tmp_path)
    preprocessing(tmp_path)
    model = CenterCLIP.from_pretrained(tmp_path, device="cpu")
    assert model.tokenize(["一只狗"])["input_ids"].tolist() == [[2, 5, 6, 7, 3]]
    alone, beside = model.encode_text(["一只狗"])[0], model.encode_text(["一只狗", "一只猫在海滩上跑"])[0]
    assert torch.allclose(alone, beside, atol=1e-5)  # padding is masked
    check_clustering(model)
    model.save_pretrained(tmp_path / "saved")
    assert CenterCLIP.from_pretrained(tmp_path / "saved").fingerprint() == model.fingerprint()
    assert open_encoder(tmp_path).engine == "torch"


def test_metaclip_2(tmp_path):
    torch.manual_seed(0)
    special = {"bos_token_id": 598, "eos_token_id": 599, "pad_token_id": 599}
    config = MetaClip2Config(projection_dim=24, vision_config=VISION, text_config={**TEXT, **special})
    MetaClip2Model(config).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    preprocessing(tmp_path)
    model = CenterCLIP.from_pretrained(tmp_path, device="cpu")
    assert model.encode_text(["a dog", "a longer sentence"]).shape == (2, 24)
    check_clustering(model)


# ---- the list -----------------------------------------------------------------------------------------------


def parameters(known):
    """Counted in the class of transformers, without memory for them."""
    image, patch, width, blocks = known.vision
    mlp = {768: 3072, 1152: 4304}[width]
    heads = width // (72 if width == 1152 else 64)
    tower = {"hidden_size": width, "intermediate_size": mlp, "num_attention_heads": heads, "num_hidden_layers": blocks}
    vision = {**tower, "image_size": image, "patch_size": patch}
    with torch.device("meta"):
        if "chinese" in known.name:
            text = {"vocab_size": 21128, "max_position_embeddings": 512}
            model = ChineseCLIPModel(ChineseCLIPConfig(projection_dim=512, vision_config=vision, text_config=text))
        elif "siglip" in known.name:
            vocabulary = 256_000 if "siglip2" in known.name else 32_000
            text = {**tower, "vocab_size": vocabulary, "projection_size": width, "max_position_embeddings": 64}
            model = SiglipModel(SiglipConfig(vision_config=vision, text_config=text))
        else:
            model = CLIPModel(CLIPConfig(projection_dim=512, vision_config=vision))
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("known", KNOWN_MODELS, ids=lambda known: known.name)
def test_sizes_are_those_of_the_architecture(known):
    assert known.parameters == pytest.approx(parameters(known) / 1e6, abs=0.06)


def test_the_list_of_models():
    result = CliRunner().invoke(app, ["models", "--json"])
    rows = {row["name"]: row for row in json.loads(result.stdout)["models"]}
    assert rows.keys() == {known.name for known in KNOWN_MODELS}
    assert all(row["frames_per_second"] > 0 for row in rows.values())
    text = CliRunner().invoke(app, ["models"], env={"COLUMNS": "160"}).stdout
    assert "multilingual = google/siglip2-base-patch32-256" in text
    assert "109 languages" in text


def test_short_names_stand_for_models_of_the_list(monkeypatch, tmp_path):
    assert SHORT_NAMES.keys() == {"fast", "best", "multilingual"}
    asked = []
    monkeypatch.setattr(hub, "_from_hub", lambda name, *_: asked.append(name) or tmp_path)
    for short, name in SHORT_NAMES.items():
        hub.find_model(short)
        assert asked[-1] == name
        assert VideoIndex(tmp_path / "index", model=short)._model == name  # an index keeps the whole name
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fast").mkdir()
    assert full_name("fast") == "fast"  # a folder of that name
