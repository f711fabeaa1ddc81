"""A CLIP that starts from nothing: the standard class in any size, and a tokenizer made from captions."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .backbone import Backbone
from .preprocess import Preprocess
from .vocabulary import WORD_END, byte_letters

ENDS = ("<|startoftext|>", "<|endoftext|>")
SAMPLE = 200_000  # captions that the tokenizer is made from; more change nothing


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large a new CLIP is."""

    image_size: int
    patch_size: int
    width: int
    blocks: int
    heads: int
    text_width: int
    text_blocks: int
    text_heads: int
    projection: int
    words: int  # most tokens of a sentence


def new_backbone(sizes: Sizes, captions: Iterable[str], *, vocabulary: int) -> Backbone:
    """A CLIP with random weights (from torch's generator) and a tokenizer for sentences like ``captions``.

    Args:
        sizes: of the two towers.
        captions: sentences of the training data.
        vocabulary: most tokens; 514 of them are the bytes and the two ends.
    """
    from transformers import CLIPConfig, CLIPModel

    tokenizer = make_tokenizer(captions, vocabulary=vocabulary, words=sizes.words)
    config = CLIPConfig(
        projection_dim=sizes.projection,
        vision_config={
            "hidden_size": sizes.width,
            "intermediate_size": 4 * sizes.width,
            "num_hidden_layers": sizes.blocks,
            "num_attention_heads": sizes.heads,
            "image_size": sizes.image_size,
            "patch_size": sizes.patch_size,
        },
        text_config={
            "hidden_size": sizes.text_width,
            "intermediate_size": 4 * sizes.text_width,
            "num_hidden_layers": sizes.text_blocks,
            "num_attention_heads": sizes.text_heads,
            "max_position_embeddings": sizes.words,
            "vocab_size": len(tokenizer),
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.eos_token_id,
        },
    )
    return Backbone(CLIPModel(config), tokenizer, Preprocess(size=sizes.image_size))


def make_tokenizer(captions: Iterable[str], *, vocabulary: int, words: int) -> Any:
    """CLIP's kind of byte-pair tokenizer, with the merges that ``captions`` call for."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    letters = list(byte_letters().values())
    base = [*letters, *(letter + WORD_END for letter in letters)]
    learner = Tokenizer(models.BPE(end_of_word_suffix=WORD_END))
    learner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=max(len(base), vocabulary - len(ENDS)),
        initial_alphabet=letters,
        end_of_word_suffix=WORD_END,
        min_frequency=2,
        show_progress=False,
    )
    learner.train_from_iterator(islice(captions, SAMPLE), trainer)
    merges = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    merges = merges[: max(0, vocabulary - len(ENDS) - len(base))]
    tokens = [*base, *("".join(pair) for pair in merges), *ENDS]
    return CLIPTokenizer(
        vocab={token: place for place, token in enumerate(dict.fromkeys(tokens))}, merges=merges, model_max_length=words
    )
