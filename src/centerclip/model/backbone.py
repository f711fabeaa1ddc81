"""Opens any CLIP: a hub name, a folder, a file of weights; also SigLIP and two towers of one's own."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..bundled import known_as
from ..errors import ModelError, ModelNotFound, NotADualEncoder, WrongWeights
from .checkpoints import read_state_dict, to_clip, to_temporal
from .preprocess import Preprocess
from .tokenizer import clip_tokenizer, make_tokenizer
from .vectors import TemporalTransformer

KINDS = {  # model_type in config.json -> class in transformers
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
    "vision-text-dual-encoder": "VisionTextDualEncoderModel",
}
SETTINGS = "centerclip.json"
TEMPORAL = "temporal.safetensors"
HUB_SECONDS = 15.0  # how long the hub may take to say what a model consists of
FILES = ("*.json", "*.txt", "*.model")
GO_ON = (
    "Pass the path of a folder or file that is on this machine instead (--model my-folder), for example one that "
    "save_pretrained wrote, or try the small model that comes with CenterCLIP (--model demo)"
)


@dataclass
class Backbone:
    """An opened model and what belongs to it."""

    model: Any  # CLIPModel, SiglipModel or VisionTextDualEncoderModel
    tokenizer: Any
    preprocess: Preprocess
    temporal: TemporalTransformer | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # what centerclip.json says


def open_backbone(name: str | Path, *, trust: bool = False) -> Backbone:
    """Open a model from the Hugging Face hub, a folder, or a file of weights.

    Args:
        name: ``"openai/clip-vit-base-patch32"``, a folder in that format, an OpenAI, CLIP4Clip or CenterCLIP
            checkpoint file, or ``"demo"``, the bundled model.
        trust: open a TorchScript archive that OpenAI did not publish; it runs the code inside.
    """
    name = known_as(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return _from_file(path, trust)
    if (
        isinstance(name, Path)
        or path.suffix in (".pt", ".pth", ".bin")
        or not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name))
    ):
        raise ModelNotFound(f"there is no file or folder {path}; a model on the Hugging Face hub is called owner/name")
    return _from_folder(_download(str(name)))


def _from_file(path: Path, trust: bool) -> Backbone:
    if path.suffix == ".safetensors":
        raise ModelError(
            f"{path} is the weights of a folder alone; pass the folder {path.parent}, with its config.json"
        )
    weights = read_state_dict(path, trust=trust)
    model = to_clip(weights, path)
    return Backbone(
        model, clip_tokenizer(), Preprocess(size=model.config.vision_config.image_size), to_temporal(weights, path)
    )


def _from_folder(folder: Path) -> Backbone:
    import transformers

    config = _read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in KINDS:
        raise NotADualEncoder(
            f"{folder} holds a {kind or 'nameless'} model; what turns pictures and words into vectors of one space "
            f"is one of {', '.join(KINDS)}"
        )
    model = _load_weights(getattr(transformers, KINDS[kind]), folder)
    settings = _read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    vision = model.config.vision_config
    return Backbone(
        model,
        _load_tokenizer(folder, kind),
        Preprocess.from_folder(folder, vision.image_size),
        _load_temporal(folder, settings),
        settings,
    )


def _load_weights(model_class: Any, folder: Path) -> Any:
    import torch
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()  # what it would print is raised below, in one sentence
    logging.disable_progress_bar()
    try:
        model, info = model_class.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise WrongWeights(f"{folder} cannot be opened: {str(error).strip().splitlines()[0]}") from error
    except Exception as error:  # safetensors and pickle have errors of their own
        raise WrongWeights(f"the weights in {folder} are damaged: {str(error).strip().splitlines()[0]}") from error
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()
    if info["mismatched_keys"]:
        name, found, expected = sorted(info["mismatched_keys"])[0]
        raise WrongWeights(f"{folder}: {name} is {list(found)}, but config.json says {list(expected)}")
    missing = sorted(info["missing_keys"])
    if missing:
        raise WrongWeights(
            f"{folder} lacks {len(missing)} of the weights that config.json asks for, the first is {missing[0]}"
        )
    return model.eval()


def _load_tokenizer(folder: Path, kind: str) -> Any:
    from transformers import AutoTokenizer

    names = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
    if not any((folder / name).is_file() for name in names):
        if kind == "clip":
            return clip_tokenizer()
        raise ModelError(
            f"{folder} has no tokenizer ({', '.join(names[:3])}); copy it from where the text tower comes from"
        )
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"the tokenizer in {folder} cannot be opened: {str(error).strip().splitlines()[0]}") from error


def _load_temporal(folder: Path, settings: dict[str, Any]) -> TemporalTransformer | None:
    if not settings.get("temporal"):
        return None
    from safetensors.torch import load_file

    head = TemporalTransformer(**settings["temporal"])
    try:
        head.load_state_dict(load_file(folder / TEMPORAL))
    except Exception as error:
        raise WrongWeights(f"{folder / TEMPORAL} does not fit {SETTINGS}: {str(error).splitlines()[0]}") from error
    return head


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelNotFound(f"{path.parent} is no model folder: it has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return content


def _download(name: str) -> Path:
    """The folder of a hub model: from the cache if it is there whole, else fetched."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    cached = _cached(name)
    if cached:
        return cached
    try:
        info = HfApi().model_info(name, timeout=HUB_SECONDS)
        files = [file.rfilename for file in info.siblings or []]
        # One set of weights, the safe format where there is one.
        weights = "*.safetensors" if any(file.endswith(".safetensors") for file in files) else "pytorch_model*.bin"
        return Path(snapshot_download(name, revision=info.sha, allow_patterns=[*FILES, weights]))
    except GatedRepoError as error:
        raise ModelNotFound(f'"{name}" asks you to accept its terms on the hub first, then `hf auth login`') from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f'there is no folder "{name}" here and no such model on the Hugging Face hub') from error
    except HFValidationError as error:
        raise ModelNotFound(f'"{name}" is neither a folder here nor a valid name on the Hugging Face hub') from error
    except Exception as error:  # httpx, sockets, proxies, a full disk: many kinds, one way on
        answer = f" (status {error.response.status_code})" if isinstance(error, HfHubHTTPError) else ""
        raise ModelNotFound(
            f'"{name}" is not on this machine and could not be fetched from the Hugging Face hub{answer}: '
            f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}. {GO_ON}"
        ) from error


def _cached(name: str) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except Exception:  # not there, or not a name at all: the caller asks the hub and reports
        return None
    whole = (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) | any(
        folder.glob("pytorch_model*")
    )
    return folder if whole else None


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
    max_tokens: int  # most tokens of a sentence


def new_backbone(sizes: Sizes, captions: Iterable[str], *, vocabulary: int) -> Backbone:
    """A CLIP with random weights (from torch's generator) and a tokenizer for sentences like ``captions``.

    Args:
        sizes: of the two towers.
        captions: sentences of the training data.
        vocabulary: most tokens; 514 of them are the bytes and the two ends.
    """
    from transformers import CLIPConfig, CLIPModel

    tokenizer = make_tokenizer(captions, vocabulary=vocabulary, max_tokens=sizes.max_tokens)
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
            "max_position_embeddings": sizes.max_tokens,
            "vocab_size": len(tokenizer),
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.eos_token_id,
        },
    )
    return Backbone(CLIPModel(config), tokenizer, Preprocess(size=sizes.image_size))
