"""A CLIP from nothing: the standard class, and a tokenizer that reads anything."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip import CenterCLIP
from centerclip.model.backbone import new_backbone
from centerclip.model.checkpoints import Sizes
from centerclip.model.tokenizer import make_tokenizer

CAPTIONS = ["a red cat jumps over the red fence", "the cat is red", "a dog jumps", "two cats, one dog"] * 5
SIZES = Sizes(image_size=32, patch_size=8, width=32, blocks=3, heads=2, text_width=24, text_blocks=2, text_heads=2,
              projection=16, max_tokens=20)  # fmt: skip
TOKENIZER = make_tokenizer(CAPTIONS, vocabulary=560, max_tokens=20)


def test_common_words_are_one_token():
    assert len(TOKENIZER) <= 560
    assert TOKENIZER.tokenize("The RED cat jumps") == ["the</w>", "red</w>", "cat</w>", "jumps</w>"]
    ids = TOKENIZER("a cat")["input_ids"]
    assert (ids[0], ids[-1]) == (TOKENIZER.bos_token_id, TOKENIZER.eos_token_id)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=12))
def test_every_text_is_read_without_unknown_tokens(text):
    tokens = TOKENIZER.tokenize(text)
    assert all(token in TOKENIZER.get_vocab() for token in tokens)
    assert TOKENIZER.unk_token_id not in TOKENIZER.convert_tokens_to_ids(tokens) or TOKENIZER.unk_token in tokens


def test_a_vocabulary_too_small_for_words_still_has_all_bytes():
    tokenizer = make_tokenizer(CAPTIONS, vocabulary=300, max_tokens=20)
    assert len(tokenizer) == 514
    assert tokenizer.tokenize("cat") == ["c", "a", "t</w>"]


def test_a_new_model_is_a_standard_folder(tmp_path):
    torch.manual_seed(0)
    model = CenterCLIP(new_backbone(SIZES, CAPTIONS, vocabulary=560), clustering="B2-2,8", frames=4).eval()
    video = torch.randint(0, 255, (4, 32, 32, 3), dtype=torch.uint8)
    model.save_pretrained(tmp_path)
    again = CenterCLIP.from_pretrained(tmp_path)
    assert type(again.backbone).__name__ == "CLIPModel"
    assert torch.allclose(again.encode_video(video).segments, model.encode_video(video).segments, atol=1e-6)
    assert torch.allclose(again.encode_text("a red dog"), model.encode_text("a red dog"), atol=1e-6)
    assert again.max_tokens == 20


def test_a_sentence_longer_than_the_model_reads_is_cut_and_ends():
    model = CenterCLIP(new_backbone(SIZES, CAPTIONS, vocabulary=560), frames=4)
    ids = model.tokenize(["cat " * 50])["input_ids"][0]
    assert len(ids) == 20
    assert ids[-1] == model.tokenizer.eos_token_id
