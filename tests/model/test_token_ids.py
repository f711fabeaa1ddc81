"""Token ids without transformers equal those of transformers."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, BertTokenizer

from centerclip.errors import ModelError
from centerclip.model.token_ids import SentenceTokenizer, clean_text
from centerclip.model.tokenizer import clip_tokenizer

SENTENCES = [
    "a dog",
    "",
    "Two men, one of them old, play chess! It's 2024 #tag",
    "naïve café \u2014 \u201cquotes\u201d \u2026 ½ &amp; 日本語, русский 😀",
    "and a very long sentence " * 30,
]
CLIP = {"model_type": "clip", "text_config": {"model_type": "clip_text_model"}}
BERT = {"model_type": "vision-text-dual-encoder", "text_config": {"model_type": "bert"}}
SIGLIP = {"model_type": "siglip", "text_config": {"model_type": "siglip_text_model"}}


def check(folder, config, texts=SENTENCES, *, expected=SENTENCES, full=False, max_tokens=20):
    ids, mask = SentenceTokenizer(folder, config, max_tokens)(texts)
    reference = AutoTokenizer.from_pretrained(folder)(
        expected, padding="max_length" if full else True, truncation=True, max_length=max_tokens, return_tensors="np"
    )
    assert ids.tolist() == reference["input_ids"].tolist()
    assert (mask.min() == 1) if full else mask.tolist() == reference["attention_mask"].tolist()


@pytest.mark.parametrize("layout", ["tokenizer.json", "vocab.json and merges.txt"])
def test_clip(tmp_path, layout):
    tokenizer = clip_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CLIP))
    if layout != "tokenizer.json":  # as OpenAI's repository has them
        model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
        lines = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
        (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]), encoding="utf-8")
    check(tmp_path, CLIP, expected=[clean_text(text) for text in SENTENCES])


@pytest.mark.parametrize("layout", ["tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize("lower", [True, False])
def test_bert(tmp_path, layout, lower):
    words = [
        "a",
        "dog",
        "Two",
        "two",
        "men",
        "##s",
        ",",
        "!",
        "old",
        "cafe",
        "日",
        "本",
        "2",
        "##0",
        "sentence",
        "Long",
    ]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    BertTokenizer(vocab={token: place for place, token in enumerate(tokens)}, do_lower_case=lower).save_pretrained(
        tmp_path
    )
    if layout == "vocab.txt":
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    check(tmp_path, BERT)


def siglip2(folder, padding_side):
    """A small tokenizer in Gemma's layout, as SigLIP 2's repositories have it."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *"abcdefghijklmnopqrstuvwxyzABDST,.!'0124"]
    backend = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, [], unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(single="$A:0 <eos>:0", special_tokens=[("<eos>", 1)])
    backend.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "Siglip2Tokenizer", "pad_token": "<pad>", "padding_side": padding_side}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "siglip2"}))


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_siglip_2_is_lower_case_and_padded_to_full_length(tmp_path, padding_side):
    siglip2(tmp_path, padding_side)
    tokenizer = SentenceTokenizer(tmp_path, SIGLIP, 20)
    ids, mask = tokenizer(["A Dog", "a dog", "a"])
    assert ids.shape == mask.shape == (3, 20)
    assert mask.min() == 1
    assert ids[0].tolist() == ids[1].tolist()
    text = AutoTokenizer.from_pretrained(tmp_path)(["A Dog", "a"], add_special_tokens=False)["input_ids"]
    for row, expected in ((ids[0], text[0]), (ids[2], text[1])):
        assert [each for each in row.tolist() if each not in (0, 1)] == [each for each in expected if each > 1]


def test_siglip_drops_signs_and_case_as_its_training_text_did(tmp_path):
    siglip2(tmp_path, "right")
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "SiglipTokenizer"}))
    tokenizer = SentenceTokenizer(tmp_path, SIGLIP, 20)
    assert tokenizer(["A dog's,  day!"])[0].tolist() == tokenizer(["a dogs day"])[0].tolist()


def test_a_folder_without_a_tokenizer_says_what_to_do(tmp_path):
    with pytest.raises(ModelError, match="copy the one of its text tower there"):
        SentenceTokenizer(tmp_path, BERT, 20)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be opened"):
        SentenceTokenizer(tmp_path, BERT, 20)
