"""Opens any CLIP: a hub name, a folder, a checkpoint file; also SigLIP and dual encoders of any two towers.

:func:`new_backbone` makes one with random weights instead, for training from scratch.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ..bundled import resolve_model
from ..cluster import Setting
from ..errors import ModelError, ModelNotFound, NotADualEncoder, SettingError, WrongWeights, first_few, first_line
from .checkpoints import Sizes as Sizes
from .checkpoints import read_state_dict, to_clip, to_temporal
from .preprocess import Preprocess
from .tokenizer import clip_tokenizer, make_tokenizer
from .vectors import Protocol, Rule, TemporalTransformer

MODEL_CLASSES = {  # model_type in config.json -> class in transformers
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
    "vision-text-dual-encoder": "VisionTextDualEncoderModel",
}
SETTINGS_FILE = "centerclip.json"
NAMED_SETTINGS = {"similarity": get_args(Rule), "protocol": get_args(Protocol)}
TEMPORAL_FILE = "temporal.safetensors"
PREPROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
TOKENIZER_FILES = (  # any of them is a tokenizer
    "tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model",
)  # fmt: skip
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # in the order that transformers looks for them
CONFIG_PATTERNS = ("*.json", "*.txt", "*.model")  # what is fetched from the hub beside the weights
HUB_SECONDS = 15.0  # how long the hub may take to say what a model consists of
OFFLINE_HINT = (
    "Try again with a connection, or use a model on this machine: a folder that save_pretrained wrote "
    "(--model my-folder), or the small one that comes with CenterCLIP (--model demo)"
)


@dataclass
class Backbone:
    """An opened model and what belongs to it."""

    model: Any  # CLIPModel, SiglipModel or VisionTextDualEncoderModel
    tokenizer: Any
    preprocess: Preprocess
    temporal: TemporalTransformer | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # what centerclip.json says


def open_backbone(name: str | Path, *, revision: str | None = None, trust_torchscript: bool = False) -> Backbone:
    """Open a model from the Hugging Face hub, a folder, or a checkpoint file.

    Args:
        name: ``"openai/clip-vit-base-patch32"``, a folder in that format, an OpenAI, CLIP4Clip or CenterCLIP
            checkpoint file, or ``"demo"``, the bundled model.
        revision: a branch, tag or commit of the model on the hub; its main branch by default.
        trust_torchscript: open a TorchScript archive that OpenAI did not publish; this runs the code inside.
    """
    name = resolve_model(name)
    path = Path(name).expanduser()
    if revision is not None and path.exists():
        raise ModelError(f"{path} is on this machine and has no revisions; leave out revision={revision!r}")
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return _from_file(path, trust_torchscript)
    is_hub_name = isinstance(name, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", name)
    if not is_hub_name or path.suffix in (".pt", ".pth", ".bin"):
        raise ModelNotFound(f"there is no file or folder {path}; a model on the Hugging Face hub is called owner/name")
    return _from_folder(_from_hub(str(name), revision))


def _from_file(path: Path, trust_torchscript: bool) -> Backbone:
    if path.suffix == ".safetensors":
        raise ModelError(f"{path} holds weights alone; pass its folder, {path.parent}, which has the config.json")
    weights = read_state_dict(path, trust_torchscript=trust_torchscript)
    model = to_clip(weights, path)
    preprocess = Preprocess(size=model.config.vision_config.image_size)
    return Backbone(model, clip_tokenizer(), preprocess, to_temporal(weights, path))


def _from_folder(folder: Path) -> Backbone:
    import transformers

    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} is not a model folder: it has no config.json")
    model_type = _read_json(folder / "config.json").get("model_type")
    if model_type not in MODEL_CLASSES:
        raise NotADualEncoder(
            f"{folder} holds a model of type {model_type!r}; a model that encodes both images and text is needed: "
            f"{', '.join(MODEL_CLASSES)}"
        )
    model = _load_weights(getattr(transformers, MODEL_CLASSES[model_type]), folder)
    settings = _read_settings(folder / SETTINGS_FILE)
    tokenizer = _load_tokenizer(folder, model_type)
    preprocess = _load_preprocess(folder, model.config.vision_config.image_size)
    return Backbone(model, tokenizer, preprocess, _load_temporal(folder, settings), settings)


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
        raise WrongWeights(f"{folder} cannot be opened: {first_line(error)}") from error
    except Exception as error:  # safetensors and pickle have errors of their own
        raise WrongWeights(f"the weights in {folder} are damaged: {first_line(error)}") from error
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()
    if info["mismatched_keys"]:
        name, shape, expected = sorted(info["mismatched_keys"])[0]
        raise WrongWeights(f"{folder}: {name} is {list(shape)}, but config.json says {list(expected)}")
    missing = sorted(info["missing_keys"])
    if missing:
        raise WrongWeights(f"{folder} lacks weights that config.json asks for: {first_few(missing)}")
    return model.eval()


def _load_tokenizer(folder: Path, model_type: str) -> Any:
    from transformers import AutoTokenizer

    if not _has_any(folder, TOKENIZER_FILES):
        if model_type == "clip":
            return clip_tokenizer()
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json, vocab.txt); copy the one of its text tower there")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"the tokenizer in {folder} cannot be opened: {first_line(error)}") from error


def _load_preprocess(folder: Path, size: int) -> Preprocess:
    """What the folder says; CLIP's values where it says nothing."""
    for name in PREPROCESSOR_FILES:
        if (folder / name).is_file():
            config = _read_json(folder / name)
            return Preprocess.from_config(config.get("image_processor", config), size)
    return Preprocess(size=size)


def _load_temporal(folder: Path, settings: dict[str, Any]) -> TemporalTransformer | None:
    if not settings.get("temporal"):
        return None
    from safetensors.torch import load_file

    try:
        head = TemporalTransformer(**settings["temporal"])
        head.load_state_dict(load_file(folder / TEMPORAL_FILE))
    except Exception as error:
        raise WrongWeights(f"{folder / TEMPORAL_FILE} does not fit {SETTINGS_FILE}: {first_line(error)}") from error
    return head


def _read_settings(path: Path) -> dict[str, Any]:
    """What ``centerclip.json`` says; nothing where there is none. Every value is of the kind that the model takes."""
    settings = _read_json(path) if path.is_file() else {}
    for key, value in settings.items():
        what = ""
        if key in ("frames", "max_tokens", "words") and (type(value) is not int or value < 1):
            what = "a whole number from 1 on"
        elif key in NAMED_SETTINGS and value not in NAMED_SETTINGS[key]:
            what = " or ".join(f'"{name}"' for name in NAMED_SETTINGS[key])
        elif key == "temporal" and value is not None and not _is_sizes(value):
            what = "an object of whole numbers: width, layers, heads, positions"
        elif key == "chooser" and not isinstance(value, str):
            what = "the name of a function"
        if what:
            raise ModelError(f'{path}: "{key}" must be {what}, not {json.dumps(value)[:80]}')
    try:
        Setting.parse(settings.get("clustering", "none"))
    except SettingError as error:
        raise ModelError(f'{path}: "clustering": {error}') from error
    return settings


def _is_sizes(value: Any) -> bool:
    return isinstance(value, dict) and all(type(size) is int and size > 0 for size in value.values())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return content


def _has_any(folder: Path, names: Iterable[str]) -> bool:
    return any((folder / name).is_file() for name in names)


# ---- the hub ------------------------------------------------------------------------------------------------


def _from_hub(name: str, revision: str | None) -> Path:
    """The folder of a hub model: from the cache if it is there whole, else what is missing is fetched."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    snapshot = _cached_snapshot(name, revision)
    missing = _missing_files(snapshot) if snapshot else []
    if snapshot and not missing:
        return snapshot
    try:
        info = HfApi().model_info(name, revision=revision, timeout=HUB_SECONDS)
        files = [file.rfilename for file in info.siblings or []]
        # One set of weights, the safe format where there is one.
        weights = "*.safetensors" if any(file.endswith(".safetensors") for file in files) else "pytorch_model*.bin"
        # By branch or tag, not by commit: only then the cache knows next time which commit the name stands for.
        return Path(snapshot_download(name, revision=revision, allow_patterns=[*CONFIG_PATTERNS, weights]))
    except GatedRepoError as error:
        raise ModelNotFound(f'accept the terms of "{name}" on the hub first, then run `hf auth login`') from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f'there is no folder "{name}" and no such model on the Hugging Face hub') from error
    except RevisionNotFoundError as error:
        raise ModelNotFound(f'there is no revision "{revision}" of "{name}" on the Hugging Face hub') from error
    except HFValidationError as error:
        raise ModelNotFound(f'"{name}" is neither a folder nor a valid name on the Hugging Face hub') from error
    except Exception as error:  # httpx, sockets, proxies, a full disk: many kinds, one thing to say
        model = f'"{name}"' + (f' at revision "{revision}"' if revision else "")
        state = (
            f"is only partly on this machine (missing: {first_few(missing)})" if missing else "is not on this machine"
        )
        raise ModelNotFound(
            f"{model} {state} and could not be fetched from the Hugging Face hub: {first_line(error)}. {OFFLINE_HINT}"
        ) from error


def _cached_snapshot(name: str, revision: str | None) -> Path | None:
    """The folder in the hub's cache that holds a model, whole or not."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:  # not a name at all: the caller asks the hub and reports
        return None
    return Path(config).parent if isinstance(config, str) else None


def _missing_files(snapshot: Path) -> list[str]:
    """What a snapshot lacks of the files that a model on the hub has: a download that was cut short leaves gaps.

    Without this check a model would open with CLIP's preprocessing or tokenizer in place of its own.
    """
    missing = [] if _has_any(snapshot, PREPROCESSOR_FILES) else [PREPROCESSOR_FILES[0]]
    if not _has_any(snapshot, TOKENIZER_FILES):
        missing.append(TOKENIZER_FILES[0])
    elif not _has_any(snapshot, ("tokenizer.json", "merges.txt")) and _has_any(snapshot, ("vocab.json",)):
        missing.append("merges.txt")
    for weights in WEIGHT_FILES:
        if (snapshot / weights).is_file():
            return missing
        index = snapshot / f"{weights}.index.json"
        if index.is_file():
            shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
            return missing + [shard for shard in shards if not (snapshot / shard).is_file()]
    return [*missing, WEIGHT_FILES[0]]


# ---- from scratch -------------------------------------------------------------------------------------------


def new_backbone(sizes: Sizes, captions: Iterable[str], *, vocabulary: int) -> Backbone:
    """A CLIP with random weights (from torch's generator) and a tokenizer for sentences like ``captions``.

    Args:
        sizes: of the two towers.
        captions: sentences of the training data.
        vocabulary: at most this many tokens; 514 of them are the bytes and the two special tokens.
    """
    from transformers import CLIPModel

    tokenizer = make_tokenizer(captions, vocabulary=vocabulary, max_tokens=sizes.max_tokens)
    config = sizes.config(len(tokenizer), tokenizer.bos_token_id, tokenizer.eos_token_id)
    return Backbone(CLIPModel(config), tokenizer, Preprocess(size=sizes.image_size))
