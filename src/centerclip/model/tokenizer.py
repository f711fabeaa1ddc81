"""CLIP's byte-pair tokenizer: with OpenAI's vocabulary, or with one learned from captions.

OpenAI's checkpoints carry no tokenizer. The instant-clip-tokenizer package knows the vocabulary but offers only encode
and decode, so every token is decoded to its bytes, and the merges follow from the order of the tokens.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice, pairwise, product
from typing import Any

from .token_ids import SPECIAL_TOKENS, WORD_END, clean_text

CLIP_TOKENS = 49408
BYTES = 256
MAX_CAPTIONS = 200_000  # that a tokenizer is learned from; more change nothing
REPLACEMENT = "\ufffd"  # what decoding gives for part of a UTF-8 character
CONTINUATION = range(0x80, 0xC0)  # bytes inside a UTF-8 character


@lru_cache(maxsize=1)
def clip_tokenizer() -> Any:
    """A ``transformers.CLIPTokenizer`` with OpenAI's vocabulary (49,408 tokens)."""
    from transformers import CLIPTokenizer

    tokens = _token_strings()
    vocabulary = {token: place for place, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=_merges(tokens), model_max_length=77)


def make_tokenizer(captions: Iterable[str], *, vocabulary: int, max_tokens: int) -> Any:
    """A ``transformers.CLIPTokenizer`` with the merges that ``captions`` call for, at most ``vocabulary`` tokens."""
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
        vocab_size=max(len(base), vocabulary - len(SPECIAL_TOKENS)),
        initial_alphabet=letters,
        end_of_word_suffix=WORD_END,
        min_frequency=2,
        show_progress=False,
    )
    learner.train_from_iterator(map(clean_text, islice(captions, MAX_CAPTIONS)), trainer)
    merges = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    merges = merges[: max(0, vocabulary - len(SPECIAL_TOKENS) - len(base))]
    tokens = [*base, *("".join(pair) for pair in merges), *SPECIAL_TOKENS]
    return CLIPTokenizer(
        vocab={token: place for place, token in enumerate(dict.fromkeys(tokens))},
        merges=merges,
        model_max_length=max_tokens,
    )


def byte_letters() -> dict[int, str]:
    """The letter that stands for each byte in byte-level BPE: itself if printable, else one past 255.

    The order is that of the first 256 tokens.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def _token_strings() -> list[str]:
    from instant_clip_tokenizer import Tokenizer

    tokenizer = Tokenizer()
    letters = byte_letters()
    singles = list(letters.values())
    byte_ids = {byte: place for place, byte in enumerate(letters)}
    tokens = singles + [letter + WORD_END for letter in singles]
    for token in range(2 * BYTES, CLIP_TOKENS - 2):
        text = tokenizer.decode([token])
        ends_word = text.endswith(" ")
        raw = text.removesuffix(" ").encode() if REPLACEMENT not in text else _partial_bytes(tokenizer, token, byte_ids)
        tokens.append("".join(letters[byte] for byte in raw) + (WORD_END if ends_word else ""))
    return [*tokens, *SPECIAL_TOKENS]


def _partial_bytes(tokenizer: Any, token: int, byte_ids: dict[int, int]) -> bytes:
    """The bytes of a token that begins or ends inside a character: complete it with bytes until it decodes."""
    for before, after in _completions():
        ids = [*(byte_ids[byte] for byte in before), token, *(byte_ids[byte] for byte in after)]
        text = tokenizer.decode(ids).removesuffix(" ")
        if REPLACEMENT not in text:
            return text.encode()[len(before) : len(text.encode()) - len(after)]
    return tokenizer.decode([token]).removesuffix(" ").encode()  # the replacement character is what it says


@lru_cache(maxsize=1)
def _completions() -> list[tuple[bytes, bytes]]:
    """What may stand before and after such a token, the likeliest first: parts of UTF-8 characters."""
    starts = [b"", *(bytes([lead]) for lead in range(0xC2, 0xF5))]
    starts += [bytes(pair) for pair in product(range(0xE0, 0xF5), CONTINUATION)]
    starts += [bytes([0xF0, second, third]) for second, third in product(range(0x90, 0xC0), CONTINUATION)]
    ends = [b"", b"\x80", b"\xa0", b"\x80\x80", b"\xa0\x80", b"\x90\x80\x80"]
    return [(before, after) for after in ends for before in starts]


def _merges(tokens: list[str]) -> list[tuple[str, str]]:
    """The pair that each token past the bytes was merged from: what is left of it under all earlier merges."""
    ranks: dict[tuple[str, str], int] = {}
    for token in tokens[2 * BYTES : -2]:
        word = token.removesuffix(WORD_END)
        parts = list(word)
        if word != token:
            parts[-1] += WORD_END
        while len(parts) > 2:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: ranks.get(pair, CLIP_TOKENS))
            place = pairs.index(best)
            parts[place : place + 2] = ["".join(best)]
        ranks[(parts[0], parts[1])] = len(ranks)
    return list(ranks)
