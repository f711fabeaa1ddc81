"""OpenAI's CLIP files and what CLIP4Clip and CenterCLIP trained from them -> a Hugging Face CLIPModel.

The size of the model is read off the shapes of its weights; names and layouts are translated.
"""

import hashlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelError, NotADualEncoder, UntrustedFile, WrongWeights, first_few, first_line
from .temporal import TemporalTransformer

# SHA-256 of the TorchScript archives that OpenAI published.
PUBLISHED = {
    "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af": "ViT-B/32",
    "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f": "ViT-B/16",
}
START_TOKEN, END_TOKEN = 49406, 49407
HEAD_WIDTH = 64  # of all of OpenAI's models
STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model")  # where training scripts put the weights
TEMPORAL_PREFIX = "transformerClip."  # of CLIP4Clip's temporal transformer
TOP_LEVEL_NAMES = {  # OpenAI's names -> those of transformers, outside the blocks
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "logit_scale": "logit_scale",
}
BLOCK_NAMES = {  # and inside a block
    "attn.out_proj": "self_attn.out_proj",
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large a CLIP is."""

    image_size: int
    patch_size: int
    width: int
    blocks: int
    heads: int
    text_width: int
    text_blocks: int
    text_heads: int
    projection: int
    max_tokens: int  # most tokens of a sentence

    def config(self, vocabulary: int, start_token: int, end_token: int) -> Any:
        """The ``transformers.CLIPConfig``."""
        from transformers import CLIPConfig

        return CLIPConfig(
            projection_dim=self.projection,
            vision_config={
                "hidden_size": self.width,
                "intermediate_size": 4 * self.width,
                "num_hidden_layers": self.blocks,
                "num_attention_heads": self.heads,
                "image_size": self.image_size,
                "patch_size": self.patch_size,
            },
            text_config={
                "hidden_size": self.text_width,
                "intermediate_size": 4 * self.text_width,
                "num_hidden_layers": self.text_blocks,
                "num_attention_heads": self.text_heads,
                "max_position_embeddings": self.max_tokens,
                "vocab_size": vocabulary,
                "bos_token_id": start_token,
                "eos_token_id": end_token,
                "pad_token_id": end_token,
            },
        )


def read_state_dict(path: Path, *, trust_torchscript: bool = False) -> dict[str, Tensor]:
    """The weights in a ``.pt``, ``.pth`` or ``.bin`` file, under OpenAI's names, in float32.

    Args:
        path: the file.
        trust_torchscript: open a TorchScript archive that is not one of OpenAI's. Opening it runs the code inside.
    """
    if _is_torchscript(path):
        _check_trust(path, trust_torchscript)
        try:
            archive = torch.jit.load(path, map_location="cpu").state_dict()
        except RuntimeError as error:
            raise ModelError(f"{path} is a damaged TorchScript archive: {first_line(error)}") from error
        return {name: _plain(value) for name, value in archive.items()}
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds here, all of them about this file
        raise ModelError(
            f"{path} cannot be read as a checkpoint: {first_line(error)}. It is damaged, or holds more than tensors, "
            "which is never loaded; save its state_dict alone and try again"
        ) from error
    for key in STATE_DICT_KEYS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise WrongWeights(f"{path} holds a {type(content).__name__}, not a state_dict")
    weights = {_name(str(key)): _plain(value) for key, value in content.items() if isinstance(value, Tensor)}
    if not weights:
        raise WrongWeights(f"{path} holds no weights")
    return weights


def to_clip(weights: Mapping[str, Tensor], source: Path) -> Any:
    """OpenAI's weights -> ``transformers.CLIPModel``; ``source`` is named in errors."""
    from transformers import CLIPModel

    model = CLIPModel(_sizes(weights, source).config(len(weights["token_embedding.weight"]), START_TOKEN, END_TOKEN))
    translated = _translate(weights)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    missing = sorted(expected.keys() - translated.keys())
    if missing:
        raise WrongWeights(f"{source} lacks weights of a CLIP of its size: {first_few(missing)}")
    for name, shape in expected.items():
        if translated[name].shape != shape:
            raise WrongWeights(f"{source}: {name} is {list(translated[name].shape)}, expected {list(shape)}")
    model.load_state_dict({name: translated[name] for name in expected})
    return model.eval()


def to_temporal(weights: Mapping[str, Tensor], source: Path) -> TemporalTransformer | None:
    """CLIP4Clip's seqTransf head, where the file has one."""
    layers = _count(weights, rf"{re.escape(TEMPORAL_PREFIX)}resblocks\.(\d+)\.")
    if not layers:
        return None
    positions = weights["frame_position_embeddings.weight"]
    head = TemporalTransformer(
        positions.shape[1], layers=layers, heads=positions.shape[1] // HEAD_WIDTH, positions=len(positions)
    )
    translated = {"positions.weight": positions}
    for name, value in weights.items():
        if match := re.fullmatch(rf"{re.escape(TEMPORAL_PREFIX)}resblocks\.(\d+)\.(.+)", name):
            rest = match[2].replace("attn.", "self_attn.").replace("ln_", "norm")
            rest = rest.replace("mlp.c_fc", "linear1").replace("mlp.c_proj", "linear2")
            translated[f"layers.{match[1]}.{rest}"] = value
    try:
        head.load_state_dict(translated)
    except RuntimeError as error:
        raise WrongWeights(f"{source}: its temporal transformer does not fit: {first_line(error)}") from error
    return head


def _is_torchscript(path: Path) -> bool:
    """TorchScript archives are ZIP files with a table of constants; torch.save writes none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def _check_trust(path: Path, trust_torchscript: bool) -> None:
    if trust_torchscript:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest not in PUBLISHED:
        raise UntrustedFile(
            f"{path} is a TorchScript archive, which runs code when opened, and its SHA-256 is not one that OpenAI "
            "published. If you know where it comes from, open it with trust_torchscript=True"
        )


def _plain(value: Tensor) -> Tensor:
    return value.detach().float() if value.is_floating_point() else value.detach()


def _name(key: str) -> str:
    while key.startswith(("module.", "clip.")):
        key = key.split(".", 1)[1]
    return key


def _count(weights: Mapping[str, Tensor], pattern: str) -> int:
    numbers = [int(match[1]) for name in weights if (match := re.match(pattern, name))]
    return max(numbers) + 1 if numbers else 0


def _sizes(weights: Mapping[str, Tensor], source: Path) -> Sizes:
    """What the shapes of the weights imply."""
    needed = ("visual.conv1.weight", "visual.positional_embedding", "visual.proj", "token_embedding.weight")
    for name in (*needed, "positional_embedding", "text_projection", "ln_final.weight"):
        if name not in weights:
            kind = "a ResNet CLIP" if "visual.layer1.0.conv1.weight" in weights else "not a CLIP"
            raise NotADualEncoder(f"{source} is {kind}; a CLIP with a vision transformer is needed ({name} is missing)")
    width, _, patch, _ = weights["visual.conv1.weight"].shape
    text_width = weights["ln_final.weight"].shape[0]
    return Sizes(
        image_size=patch * round((weights["visual.positional_embedding"].shape[0] - 1) ** 0.5),
        patch_size=patch,
        width=width,
        blocks=_count(weights, r"visual\.transformer\.resblocks\.(\d+)\."),
        heads=max(1, width // HEAD_WIDTH),
        text_width=text_width,
        text_blocks=_count(weights, r"transformer\.resblocks\.(\d+)\."),
        text_heads=max(1, text_width // HEAD_WIDTH),
        projection=weights["text_projection"].shape[1],
        max_tokens=weights["positional_embedding"].shape[0],
    )


def _translate(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    translated = {
        "visual_projection.weight": weights["visual.proj"].T.contiguous(),
        "text_projection.weight": weights["text_projection"].T.contiguous(),
    }
    for name, value in weights.items():
        if name in TOP_LEVEL_NAMES:
            translated[TOP_LEVEL_NAMES[name]] = value
        elif match := re.fullmatch(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+)\.?(weight|bias)", name):
            tower, number, part, kind = match.groups()
            prefix = f"{'vision' if tower else 'text'}_model.encoder.layers.{number}."
            part = part.rstrip("._")
            if part == "attn.in_proj":
                for letter, third in zip("qkv", value.chunk(3), strict=True):
                    translated[f"{prefix}self_attn.{letter}_proj.{kind}"] = third.contiguous()
            elif part in BLOCK_NAMES:
                translated[f"{prefix}{BLOCK_NAMES[part]}.{kind}"] = value
    return translated
