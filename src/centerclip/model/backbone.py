"""Opens any CLIP: a hub name, a folder, a checkpoint file; also SigLIP and dual encoders of any two towers.

:func:`new_backbone` makes one with random weights instead, for training from scratch.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..cluster import Setting
from ..errors import MissingMethod, ModelError, SettingError, WrongWeights, first_few, first_line
from ..extend import backbones
from .hub import (
    MODEL_CLASSES,
    PREPROCESSOR_FILES,
    SETTINGS_FILE,
    TEMPORAL_FILE,
    TOKENIZER_FILES,
    check_config,
    check_model_type,
    find_model,
    read_json,
)
from .preprocess import Preprocess
from .tokenizer import clip_tokenizer, make_tokenizer
from .vectors import Protocol, Rule

if TYPE_CHECKING:
    from .checkpoints import Sizes
    from .temporal import TemporalTransformer

MAX_IMAGE_SIDE = 4096  # pixels; models take 224 to 1024
NAMED_SETTINGS = {"similarity": get_args(Rule), "protocol": get_args(Protocol)}


@dataclass
class Backbone:
    """An opened model and what belongs to it."""

    model: Any  # CLIPModel, SiglipModel or VisionTextDualEncoderModel
    tokenizer: Any
    preprocess: Preprocess
    temporal: "TemporalTransformer | None" = None
    settings: dict[str, Any] = field(default_factory=dict)  # what centerclip.json says


def open_backbone(name: str | Path, *, revision: str | None = None, trust_torchscript: bool = False) -> Backbone:
    """Open a model from the Hugging Face hub, a folder, or a checkpoint file.

    Args:
        name: ``"openai/clip-vit-base-patch32"``, a folder in that format, an OpenAI, CLIP4Clip or CenterCLIP
            checkpoint file, or ``"demo"``, the bundled model of MiniVTT.
        revision: a branch, tag or commit of the model on the hub; its main branch by default.
        trust_torchscript: open a TorchScript archive that OpenAI did not publish; this runs the code inside.
    """
    path = Path(name).expanduser()
    if path.is_file() and revision is None:
        return _from_file(path, trust_torchscript)
    return _from_folder(find_model(name, revision, exported=False))


def _from_file(path: Path, trust_torchscript: bool) -> Backbone:
    from .checkpoints import read_state_dict, to_clip, to_temporal

    if path.suffix == ".safetensors":
        raise ModelError(f"{path} holds weights alone; pass its folder, {path.parent}, which has the config.json")
    weights = read_state_dict(path, trust_torchscript=trust_torchscript)
    model = to_clip(weights, path)
    preprocess = Preprocess(size=model.config.vision_config.image_size)
    return Backbone(model, clip_tokenizer(), preprocess, to_temporal(weights, path))


def _from_folder(folder: Path) -> Backbone:
    import transformers

    model_type = check_model_type(folder)
    check_config(folder)
    extension = None if model_type in MODEL_CLASSES else backbones.get(model_type)
    model_class = extension.target if extension else getattr(transformers, MODEL_CLASSES[model_type])
    model = _load_weights(model_class, folder)
    settings = read_settings(folder / SETTINGS_FILE)
    tokenizer = _load_tokenizer(folder, model_type)
    preprocess = load_preprocess(folder, model.config.vision_config.image_size)
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
        if any(folder.glob("*.onnx")):
            raise WrongWeights(
                f"{folder} holds graphs for ONNX Runtime alone, to index and search with; torch needs the model that "
                "they were made from"
            ) from error
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

    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        if model_type == "clip":
            return clip_tokenizer()
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json, vocab.txt); copy the one of its text tower there")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"the tokenizer in {folder} cannot be opened: {first_line(error)}") from error


def load_preprocess(folder: Path, size: int | list[int]) -> Preprocess:
    """What the folder says; CLIP's values where it says nothing. ``config.json`` may have the size as a pair."""
    size = size[0] if isinstance(size, list) else size
    for name in PREPROCESSOR_FILES:
        if (folder / name).is_file():
            config = read_json(folder / name)
            preprocess = Preprocess.from_config(config.get("image_processor", config), size)
            if (preprocess.short_side or size) > MAX_IMAGE_SIDE:
                raise ModelError(f"{folder / name} asks for images of {preprocess.short_side or size} pixels a side")
            return preprocess
    return Preprocess(size=size)


def _load_temporal(folder: Path, settings: dict[str, Any]) -> "TemporalTransformer | None":
    if not settings.get("temporal"):
        return None
    from safetensors.torch import load_file

    from .temporal import TemporalTransformer

    try:
        head = TemporalTransformer(**settings["temporal"])
        head.load_state_dict(load_file(folder / TEMPORAL_FILE))
    except Exception as error:
        raise WrongWeights(f"{folder / TEMPORAL_FILE} does not fit {SETTINGS_FILE}: {first_line(error)}") from error
    return head


def read_settings(path: Path) -> dict[str, Any]:
    """What ``centerclip.json`` says; nothing where there is none. Every value is of the kind that the model takes."""
    settings = read_json(path) if path.is_file() else {}
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
        elif key == "needs" and not isinstance(value, str):
            what = "the name of a package"
        if what:
            raise ModelError(f'{path}: "{key}" must be {what}, not {json.dumps(value)[:80]}')
    try:
        Setting.parse(settings.get("clustering", "none"))
    except MissingMethod as error:
        if "needs" not in settings:
            raise ModelError(f'{path}: "clustering": {error}') from error  # whoever uses it says what is missing
    except SettingError as error:
        raise ModelError(f'{path}: "clustering": {error}') from error
    return settings


def saved_clustering(settings: dict[str, Any], path: Path) -> Setting:
    """The clustering that a model was saved with.

    Raises:
        ModelError: its method is of a package that is not installed, or is no longer registered.
    """
    try:
        return Setting.parse(settings.get("clustering", "none"))
    except MissingMethod as error:
        raise ModelError(
            f'{path}: the model was saved with the clustering "{settings["clustering"]}", whose method is of '
            f"{settings['needs']}, which is not here: install or import it, or name another clustering"
        ) from error


def _is_sizes(value: Any) -> bool:
    return isinstance(value, dict) and all(type(size) is int and size > 0 for size in value.values())


# ---- from scratch -------------------------------------------------------------------------------------------


def new_backbone(sizes: "Sizes", captions: Iterable[str], *, vocabulary: int) -> Backbone:
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
