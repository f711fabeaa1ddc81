"""Sentences to token ids without transformers: the ``tokenizers`` library, from the files in a model's folder.

The ids equal those of transformers, which the tests compare: CLIP's and BERT's sentences are padded to the longest of
their batch, SigLIP's to the full length that it was trained with.
"""

import html
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, first_line
from .hub import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = NDArray[np.int64]
WORD_END = "</w>"  # of CLIP's byte-pair encoding
SPECIAL_TOKENS = ("<|startoftext|>", "<|endoftext|>")
# CLIP's words, digits and signs, as its authors cut sentences.
CLIP_PARTS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
PAD_TOKENS = {"clip": SPECIAL_TOKENS[1], "SiglipTokenizer": "</s>", "bert": "[PAD]"}  # where the folder does not say
MAX_TOKENS = {"siglip": 64, "bert": 512}  # CLIP's are 77; where the configuration does not say
PADS_LEFT = ("Siglip2Tokenizer", "GemmaTokenizer")  # where the folder does not say


def clean_text(text: str) -> str:
    """Clean a sentence as CLIP's training text was: Unicode and quotes fixed, HTML unescaped, whitespace collapsed."""
    if not (text.isascii() and text.isprintable() and "&" not in text):  # otherwise there is nothing to fix
        import ftfy  # only here: importing it takes as long as encoding a sentence

        text = html.unescape(html.unescape(ftfy.fix_text(text)))  # twice, as OpenAI does: "&amp;amp;" occurs
    return " ".join(text.split())


class SentenceTokenizer:
    """Cuts sentences into the tokens of a model's text tower.

    Args:
        folder: of the model: ``tokenizer.json``, or ``vocab.json`` and ``merges.txt`` (CLIP), or ``vocab.txt`` (BERT).
        config: what its ``config.json`` says.
        max_tokens: longer sentences are cut; by default what the text tower takes.
    """

    def __init__(self, folder: Path, config: dict[str, Any], max_tokens: int | None = None) -> None:
        path = folder / "tokenizer_config.json"
        settings = read_json(path) if path.is_file() else {}
        tower = config.get("text_config") or {}
        kind = tower.get("model_type") or config.get("model_type") or ""
        max_tokens = max_tokens or tower.get("max_position_embeddings") or MAX_TOKENS.get(kind.partition("_")[0], 77)
        self._name = str(settings.get("tokenizer_class") or "").removesuffix("Fast")
        self._is_clip, self._is_siglip = kind.startswith("clip"), config.get("model_type") == "siglip"
        try:
            self._tokenizer = _open(folder, settings, is_clip=self._is_clip)
        except ModelError:
            raise
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelError(f"the tokenizer in {folder} cannot be opened: {first_line(error)}") from error
        kind = "clip" if self._is_clip else "bert"
        pad = settings.get("pad_token") or PAD_TOKENS.get(self._name) or PAD_TOKENS[kind]
        pad = pad["content"] if isinstance(pad, dict) else str(pad)
        saved = self._tokenizer.padding or {}
        number = self._tokenizer.token_to_id(pad)
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.enable_padding(
            direction=settings.get("padding_side") or ("left" if self._name in PADS_LEFT else "right"),
            pad_id=saved.get("pad_id", 0) if number is None else number,
            pad_token=pad,
            length=max_tokens if self._is_siglip else None,
        )

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """Sentences to ``input_ids`` and ``attention_mask``, ``[B, L]`` each."""
        encoded = self._tokenizer.encode_batch([self._clean(text) for text in texts])
        ids = np.array([each.ids for each in encoded], dtype=np.int64)
        if self._is_siglip:  # trained without a mask
            return ids, np.ones_like(ids)
        return ids, np.array([each.attention_mask for each in encoded], dtype=np.int64)

    def _clean(self, text: str) -> str:
        """As the text was that the tower was trained on."""
        if self._is_clip:
            return clean_text(text)
        if self._is_siglip and self._name != "SiglipTokenizer":
            return text.lower()  # SigLIP 2, whatever its tokenizer is called
        if self._name == "SiglipTokenizer":
            return re.sub(r"\s+", " ", text.lower().translate(str.maketrans("", "", string.punctuation))).strip()
        return text


def _open(folder: Path, settings: dict[str, Any], *, is_clip: bool) -> "Tokenizer":
    from tokenizers import Tokenizer

    if (folder / "tokenizer.json").is_file():
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    if is_clip and (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _clip(read_json(folder / "vocab.json"), _merges(folder / "merges.txt"))
    if (folder / "vocab.txt").is_file():
        return _bert(_lines(folder / "vocab.txt"), settings)
    raise ModelError(
        f"{folder} has no tokenizer that can be read without transformers (tokenizer.json, vocab.json with merges.txt, "
        "vocab.txt): copy the one of its text tower there"
    )


def _lines(path: Path) -> list[str]:
    """The lines of a vocabulary, in which tokens may be line separators of other kinds."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _merges(path: Path) -> list[tuple[str, str]]:
    pairs = [line.split(" ") for line in _lines(path) if not line.startswith("#version")]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _clip(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> "Tokenizer":
    """CLIP's byte-pair encoding."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    start, end = SPECIAL_TOKENS
    model = models.BPE(
        vocab=vocabulary, merges=merges, continuing_subword_prefix="", end_of_word_suffix=WORD_END, unk_token=end
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CLIP_PARTS), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.post_processor = processors.RobertaProcessing(
        (end, vocabulary[end]), (start, vocabulary[start]), trim_offsets=False, add_prefix_space=False
    )
    tokenizer.add_special_tokens([start, end])
    return tokenizer


def _bert(tokens: list[str], settings: dict[str, Any]) -> "Tokenizer":
    """BERT's word pieces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {token: place for place, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", special_tokens=special)
    tokenizer.add_special_tokens(
        [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in vocabulary]
    )
    return tokenizer
