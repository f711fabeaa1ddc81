"""Recipes: every setting of a run with its default and its reason, and the TOML files that name what differs."""

import math
import tomllib
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..cluster import Setting
from ..data.benchmark import format_of
from ..data.formats import Protocol
from ..errors import AnnotationError, CenterClipError, RecipeError

Freezable = Literal["patch-embedding", "class-embedding", "position-embedding", "token-embedding", "pre-norm"]
# What settings are called elsewhere, for "did you mean".
SETTING_ALIASES = {
    "learning_rate": "lr", "num_epochs": "epochs", "wd": "weight_decay", "max_words": "max_tokens",
    "words": "max_tokens", "num_frames": "frames", "accumulation": "micro_batch", "accumulation_steps": "micro_batch",
    "head_lr": "temporal_lr", "amp": "precision", "dataset": "benchmark", "pretrained": "start",
}  # fmt: skip
MAX_LOGIT_SCALE = {"published": 4.6052, "clean": math.log(100)}  # the authors' is rounded
NO_EFFECT = ("train.checkpoint_minutes", "train.log_every")  # on the weights, bit for bit
MAY_CHANGE_ON_RESUME = (*NO_EFFECT, "train.micro_batch")  # the same gradient but for rounding, in less memory


class Section(BaseModel):
    """A section of a recipe: a table in TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NewModel(Section):
    """The sizes of a CLIP that is trained from scratch, with a tokenizer made from the training captions."""

    image_size: int = Field(112, ge=16)
    patch_size: int = Field(16, ge=4)
    width: int = Field(192, ge=8, description="of the vision tower")
    blocks: int = Field(6, ge=1)
    heads: int = Field(3, ge=1)
    text_width: int = Field(192, ge=8)
    text_blocks: int = Field(4, ge=1)
    text_heads: int = Field(3, ge=1)
    projection: int = Field(128, ge=8, description="width of the joint space")
    vocabulary: int = Field(1000, ge=300, description="tokens of the BPE tokenizer, bytes included")
    vocabulary_from: str = Field("", description="CSV with further captions for the tokenizer, relative to --root")


class ModelSettings(Section):
    """The model."""

    start: str = Field("openai/clip-vit-base-patch32", description="hub name, folder or file; 'new' builds [model.new]")
    clustering: str = Field("none", description="the paper's notation")
    frames: int = Field(12, ge=1)
    max_tokens: int = Field(32, ge=3, description="longer sentences are cut")
    similarity: Literal["mean", "renormalise"] = Field(
        "renormalise", description="the paper's reported numbers renormalise the mean segment"
    )
    temporal: Literal["none", "seqTransf"] = "none"
    new: NewModel = NewModel()

    @field_validator("clustering")
    @classmethod
    def _known_setting(cls, text: str) -> str:
        try:
            return str(Setting.parse(text))
        except CenterClipError as error:
            raise ValueError(str(error)) from error


class DataSettings(Section):
    """The data."""

    benchmark: str = "folder"
    train: str = Field("", description="split; empty: all that the authors train on if published, else train")
    validate_on: str = Field("", description="split that chooses the best epoch; empty: test if published, else val")
    test: str = Field("test", description="split of the final numbers; empty for none")
    items: Literal["videos", "pairs"] = Field(
        "pairs", description="an epoch has each video once, or each (video, caption) pair once"
    )
    draws: int = Field(
        0, ge=0, description="0: new frames each epoch; N: draw frames N times and keep them in memory (small data)"
    )


class TrainSettings(Section):
    """The optimisation."""

    optimizer: Literal["adamw", "bertadam"] = Field("adamw", description="bertadam: CLIP4clip's, with its schedule")
    lr: float = Field(5e-6, gt=0)
    temporal_lr: float = Field(1e-4, gt=0, description="of the seqTransf head")
    epochs: int = Field(5, ge=1)
    batch_size: int = Field(128, ge=2, description="pairs per step, over all processes: the loss is over all of them")
    micro_batch: int = Field(
        0,
        ge=0,
        description="pairs in memory at a time on each process; 0 for all. Changes memory and time, not the gradient",
    )
    weight_decay: float = Field(0.2, ge=0, description="on everything but biases")
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(1e-6, gt=0)
    warmup: float = Field(0.1, ge=0, lt=1, description="fraction of the steps with a rising learning rate")
    clip_gradient: float = Field(1.0, gt=0, description="largest gradient norm")
    paper_gpus: int = Field(
        1,
        ge=1,
        description="if published: gradients, except that of logit_scale, are divided by this before they are clipped, "
        "as the authors' code does on so many GPUs",
    )
    max_logit_scale: float = Field(0.0, ge=0, description="0: 4.6052 if published, else ln 100")
    min_logit_scale: float = 0.1
    freeze: tuple[Freezable, ...] = Field((), description="parts whose weights stay as they are")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: float32 on a CPU; on a GPU float16 if published, else bfloat16 where it is supported"
    )
    gradient_checkpointing: bool = Field(False, description="less memory, about a third more time")
    seed: int = 42
    evaluate_every: int = Field(1, ge=1, description="epochs between validations; the last is always validated")
    checkpoint_minutes: float = Field(10.0, gt=0)
    log_every: int = Field(10, ge=1, description="steps between log lines")

    @model_validator(mode="after")
    def _micro_batch_fits(self) -> "TrainSettings":
        if self.micro_batch > self.batch_size:
            raise ValueError(f"micro_batch {self.micro_batch} is more than batch_size {self.batch_size}")
        if self.min_logit_scale >= (self.max_logit_scale or MAX_LOGIT_SCALE["clean"]):
            raise ValueError("min_logit_scale must be less than max_logit_scale")
        return self


class Recipe(Section):
    """All settings of a run. Those that are left to the protocol have their values: they are what the run records."""

    protocol: Protocol = Field(
        "clean", description="published: the authors' procedure, step by step; clean: no choosing on the test split"
    )
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    train: TrainSettings = TrainSettings()

    @model_validator(mode="after")
    def _set_by_protocol(self) -> "Recipe":
        try:
            benchmark = format_of(self.data.benchmark)
        except AnnotationError as error:
            raise ValueError(f"data.benchmark: {error}") from error
        data = {
            "train": self.data.train or benchmark.train_split(self.protocol),
            "validate_on": self.data.validate_on or benchmark.select_split(self.protocol),
        }
        ceiling = self.train.max_logit_scale or MAX_LOGIT_SCALE[self.protocol]
        # The recipe is frozen for everyone else.
        object.__setattr__(self, "data", self.data.model_copy(update=data))
        object.__setattr__(self, "train", self.train.model_copy(update={"max_logit_scale": ceiling}))
        return self

    @model_validator(mode="after")
    def _segments_fit(self) -> "Recipe":
        setting = Setting.parse(self.model.clustering)
        for stage in setting.stages:
            if self.model.frames % stage.segments:
                possible = [s for s in range(1, self.model.frames + 1) if self.model.frames % s == 0]
                raise ValueError(
                    f"model.clustering {setting} cannot cut {self.model.frames} frames into {stage.segments} segments; "
                    f"possible are {', '.join(map(str, possible))}"
                )
        return self

    @property
    def gradient_divisor(self) -> int:
        """What gradients are divided by before they are clipped (:func:`~.step.divide_gradients`)."""
        return self.train.paper_gpus if self.protocol == "published" else 1

    def differences(self, other: "Recipe") -> list[str]:
        """Settings that differ, as ``train.lr 1e-05 (was 5e-06)``, without those that may change on resume."""
        before = dict(flat(other.model_dump()))
        return [
            f"{name} {value} (was {before[name]})"
            for name, value in flat(self.model_dump())
            if value != before[name] and name not in MAY_CHANGE_ON_RESUME
        ]


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from a TOML file, with overrides such as ``train.lr=1e-5`` or ``protocol=clean`` on top.

    RecipeError says which setting is unknown, and suggests the nearest one, or which value is invalid.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"there is no recipe {path}; `centerclip train --list` lists the built-in ones") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path} is not a TOML file: {error}") from error
    for override in overrides:
        _apply(content, override)
    return make_recipe(content, source=str(path))


def make_recipe(content: dict[str, Any], *, source: str) -> Recipe:
    """A recipe from the content of a TOML file; ``source`` names it in messages."""
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"{source}: " + "; ".join(_message(each) for each in error.errors())) from error


def to_toml(recipe: Recipe) -> str:
    """All settings as TOML, so that the folder of a run records exactly what was run."""
    lines: list[str] = []
    table = ""
    for name, value in flat(recipe.model_dump()):
        section, _, key = name.rpartition(".")
        lines += ["", f"[{section}]"] if section != table else []
        lines.append(f"{key} = {_toml(value)}")
        table = section
    return "\n".join([*lines, ""])


def settings_help(section: type[BaseModel] = Recipe, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every setting of a section with its default and what it means; its name begins with ``prefix``."""
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from settings_help(type(field.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _toml(field.default), field.description or ""


def recipes_folder() -> Path:
    """The folder of the built-in recipes: inside an installed package, or beside ``src`` in a clone."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parents[1] / "recipes"


def list_recipes() -> Iterator[tuple[str, str]]:
    """Names such as ``msrvtt/b32-B6-4-49`` and titles: the second line of the file, after its command."""
    folder = recipes_folder()
    for path in sorted(folder.rglob("*.toml")):
        title = path.read_text(encoding="utf-8").splitlines()[1]
        yield path.relative_to(folder).with_suffix("").as_posix(), title.removeprefix("#").strip()


def find_recipe(name: str) -> Path:
    """A recipe by the path of its file, or by the name that ``--list`` shows; RecipeError suggests the nearest."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    short = path.with_suffix("").as_posix().removeprefix("recipes/") if path.suffix == ".toml" else path.as_posix()
    known = [each for each, _ in list_recipes()]
    if short in known:
        return recipes_folder() / f"{short}.toml"
    close = get_close_matches(short, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "`centerclip train --list` lists the built-in ones"
    raise RecipeError(f"there is no recipe {name}; {hint}")


def _apply(content: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    *tables, key = name.strip().split(".")
    if not equals or not key:
        raise RecipeError(f"--set {override}: write it as section.setting=value, for example train.lr=1e-5")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a string without quotes
    for table in tables:
        content = content.setdefault(table, {})
        if not isinstance(content, dict):
            raise RecipeError(f"--set {override}: {table} is a setting, not a section")
    content[key] = value


def _message(error: Any) -> str:
    place = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        return f"there is no setting {'.'.join(place)}; {_nearest(place)}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        options = [option.strip("'") for option in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        close = get_close_matches(error["input"], options, n=1)
        message = f"{error['input']!r} is not one of {', '.join(options)}" + (
            f"; did you mean {close[0]}?" if close else ""
        )
    return f"{'.'.join(place)}: {message}" if place else message


def _nearest(place: list[str]) -> str:
    """A suggestion for an unknown setting."""
    known = [name for name, _, _ in settings_help()]
    asked, key = ".".join(place), SETTING_ALIASES.get(place[-1], place[-1])
    by_key = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    # The right key in a wrong section, then a name that is close as a whole, then a close key.
    close = [key] if key in by_key else []
    close = close or [name.rsplit(".", 1)[-1] for name in get_close_matches(asked, known, n=1, cutoff=0.8)]
    if close := close or get_close_matches(key, by_key, n=1):
        return f"did you mean {by_key[close[0]]}?"
    section = ".".join(place[:-1])
    inside = [name for name in known if name.startswith(f"{section}.")] if section else []
    return f"known are {', '.join(inside or ['protocol', 'model', 'data', 'train'])}"


def flat(values: dict[str, Any], *, prefix: str = "", separator: str = ".") -> Iterator[tuple[str, Any]]:
    """The values of nested dicts, with their keys joined."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, prefix=f"{prefix}{key}{separator}", separator=separator)
        else:
            yield f"{prefix}{key}", value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
