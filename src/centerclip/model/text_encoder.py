"""A sentence to its vector with NumPy alone: importing torch and transformers takes longer than the whole search.

The text towers of CLIP, and of BERT in a dual encoder, from the model's folder. An index uses :func:`open_text_encoder`
only after its vectors were compared with the model's when the index was made. Any other model needs torch, as does
everything but a sentence.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tokenizer import clean_text

WEIGHTS, CONFIG, TOKENIZER, SETTINGS = "model.safetensors", "config.json", "tokenizer.json", "centerclip.json"
FILES = (WEIGHTS, CONFIG, TOKENIZER, SETTINGS)  # what a vector depends on
Floats = NDArray[np.float32]
TextEncoder = Callable[[str], Floats]


def open_text_encoder(folder: Path) -> TextEncoder | None:
    """A function from a sentence to its vector ``[D]`` of norm 1; None for other models."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        saved = json.loads((folder / SETTINGS).read_text(encoding="utf-8")) if (folder / SETTINGS).is_file() else {}
        text = config["text_config"]
        kind = (config.get("model_type"), text.get("model_type"))
        tower = _CLIP if kind == ("clip", "clip_text_model") else _BERT if kind[1] == "bert" else None
        if tower is None or text.get("hidden_act", "quick_gelu") not in ACTIVATIONS:
            return None
        max_tokens = saved.get("max_tokens") or saved.get("words")  # "words" in folders of earlier versions
        return tower(folder, text, max_tokens or text.get("max_position_embeddings", 77))
    except Exception:  # tokenizers and safetensors have errors of their own; whatever it is, torch can still try
        return None


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)), dtype=np.float32)


def _erf(x: Floats) -> Floats:
    """Abramowitz and Stegun 7.1.26, within 1.5e-7: NumPy has none."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.sign(x) * (1 - series * np.exp(-x * x)), dtype=np.float32)


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "gelu": lambda x: x * (0.5 + 0.5 * _erf(x * np.float32(2**-0.5))),
}


class _Tower:
    """What the two kinds share: weights that are read when they are needed, and the parts of a transformer."""

    def __init__(self, folder: Path, text: dict[str, Any], max_tokens: int) -> None:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        self.text = text
        self.file = safe_open(folder / WEIGHTS, framework="numpy")
        self.tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_tokens)
        self.width, self.heads = text["hidden_size"], text["num_attention_heads"]
        self.layers = text["num_hidden_layers"]
        self.epsilon = text.get("layer_norm_eps", 1e-5)
        self.activation = ACTIVATIONS[text.get("hidden_act", "quick_gelu")]
        self.weights: dict[str, Floats] = {}

    def __call__(self, sentence: str) -> Floats:
        ids = np.array(self.tokenizer.encode(self.clean(sentence)).ids)
        vector = self.features(ids)
        return vector / max(float(np.linalg.norm(vector)), 1e-12)

    def clean(self, sentence: str) -> str:
        """What is done to a sentence before it is tokenised."""
        return sentence

    def features(self, ids: np.ndarray) -> Floats:
        """Token ids ``[L]`` to the vector ``[D]`` of the joint space."""
        raise NotImplementedError

    def weight(self, name: str) -> Floats:
        if name not in self.weights:
            self.weights[name] = self.file.get_tensor(name).astype(np.float32)
        return self.weights[name]

    def rows(self, name: str, ids: np.ndarray) -> Floats:
        """A few rows of a large table, without reading the rest."""
        part = self.file.get_slice(name)
        return np.stack([part[int(number)] for number in ids]).astype(np.float32)

    def linear(self, x: Floats, name: str) -> Floats:
        return x @ self.weight(f"{name}.weight").T + self.weight(f"{name}.bias")

    def norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + self.epsilon)
        return scaled * self.weight(f"{name}.weight") + self.weight(f"{name}.bias")

    def attend(self, query: Floats, key: Floats, value: Floats, causal: bool) -> Floats:
        """``[L, W]`` each."""
        length = len(query)
        q, k, v = (x.reshape(length, self.heads, -1).transpose(1, 0, 2) for x in (query, key, value))  # [H, L, W / H]
        scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(q.shape[2]))
        if causal:
            scores = np.where(np.tri(length, dtype=bool), scores, np.float32(-1e30))
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        mixed = (weights / weights.sum(axis=2, keepdims=True)) @ v
        return np.asarray(mixed.transpose(1, 0, 2).reshape(length, -1))


class _CLIP(_Tower):
    """CLIP's text tower: causal, norms first, read at the end token."""

    def clean(self, sentence: str) -> str:
        return clean_text(sentence)

    def features(self, ids: np.ndarray) -> Floats:
        embeddings = "text_model.embeddings"
        x = self.rows(f"{embeddings}.token_embedding.weight", ids)
        x = x + self.weight(f"{embeddings}.position_embedding.weight")[: len(ids)]
        for number in range(self.layers):
            layer = f"text_model.encoder.layers.{number}"
            y = self.norm(x, f"{layer}.layer_norm1")
            q, k, v = (self.linear(y, f"{layer}.self_attn.{letter}_proj") for letter in "qkv")
            x = x + self.linear(self.attend(q, k, v, causal=True), f"{layer}.self_attn.out_proj")
            y = self.activation(self.linear(self.norm(x, f"{layer}.layer_norm2"), f"{layer}.mlp.fc1"))
            x = x + self.linear(y, f"{layer}.mlp.fc2")
        end = self.text.get("eos_token_id", 2)
        # Old configurations name the wrong token; the end token has the largest id then.
        place = int(ids.argmax()) if end == 2 else int((ids == end).argmax())
        pooled = self.norm(x[place], "text_model.final_layer_norm")
        return np.asarray(self.weight("text_projection.weight") @ pooled)


class _BERT(_Tower):
    """BERT as a text tower: norms last, pooled at the first token."""

    def features(self, ids: np.ndarray) -> Floats:
        embeddings = "text_model.embeddings"
        x = self.rows(f"{embeddings}.word_embeddings.weight", ids)
        x = x + self.weight(f"{embeddings}.position_embeddings.weight")[: len(ids)]
        x = self.norm(x + self.weight(f"{embeddings}.token_type_embeddings.weight")[0], f"{embeddings}.LayerNorm")
        for number in range(self.layers):
            layer = f"text_model.encoder.layer.{number}"
            q, k, v = (self.linear(x, f"{layer}.attention.self.{name}") for name in ("query", "key", "value"))
            mixed = self.linear(self.attend(q, k, v, causal=False), f"{layer}.attention.output.dense")
            x = self.norm(x + mixed, f"{layer}.attention.output.LayerNorm")
            y = self.activation(self.linear(x, f"{layer}.intermediate.dense"))
            x = self.norm(x + self.linear(y, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        pooled = np.tanh(self.linear(x[0], "text_model.pooler.dense"))
        return np.asarray(self.weight("text_projection.weight") @ pooled)
