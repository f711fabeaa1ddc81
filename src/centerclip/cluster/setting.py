"""The paper's notation for a clustering: reads ``B6-4,49`` and prints it again.

``B6-4,49`` means: right after block 6, cut the frames into 4 segments and keep 49 centres of each. Several
stages are written one after the other, the method in front, its options in brackets::

    none                           every frame on its own (CLIP4clip meanP)
    B6-4,49                        k-medoids++
    spectral:B6-3,49               spectral clustering
    spectral[sigma=median]:B6-3,49 with an option
    kmedoids[proportional]:B6-4,49 later attention weighs a centre by the size of its cluster
    B4-6,49 B8-3,49                twice
    B6-4,1/3  B6-4,0.27            a share of a segment's tokens: 49 of the 147 that three frames of ViT-B/32 have
    pooling:B6-4,49  sampling:B6-4,49  token-shift  temporal-shift

Beyond the paper, with the same number of tokens: ``means`` (the mean of each k-medoids++ cluster, which later
attention weighs by its size), ``tome`` (bipartite soft matching), ``dpcknn`` (density peaks), ``kkz`` (farthest
points), ``attention`` (what [CLASS] looks at) and ``random``. Methods of others have a name too
(:mod:`centerclip.extend`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from ..errors import MissingMethod, SettingError
from ..extend import methods

MERGING = ("means", "tome")  # a token kept is the mean of its cluster
STAGED = ("kmedoids", "spectral", "pooling", "sampling", *MERGING, "dpcknn", "kkz", "attention", "random")
INSIDE_BLOCKS = ("token-shift", "temporal-shift", "attention")  # these reach inside a block
UNSTAGED = ("none", "token-shift", "temporal-shift")
methods.reserve([*STAGED, *UNSTAGED])
ALIASES = {"k-medoids": "kmedoids", "k-medoids++": "kmedoids", "kmedoids++": "kmedoids"}
EXAMPLES = '"B6-4,49", "B6-4,1/3", "spectral:B6-3,49", "B4-6,49 B8-3,49", "token-shift" or "none"'
KMEDOIDS_OPTIONS: dict[str, tuple[str, ...] | type] = {
    "metric": ("euclidean", "cosine"),
    "normalise": bool,
    "centre": ("medoid", "nearest-to-mean"),
    "iterations": int,
    "proportional": bool,
}
# What each method takes in brackets: names of values, or the type of a number.
OPTIONS: dict[str, dict[str, tuple[str, ...] | type]] = {
    "kmedoids": KMEDOIDS_OPTIONS,
    "spectral": {
        "sigma": float,  # or "median"
        "graph": ("knn", "dense"),
        "neighbours": int,
        "normalise": bool,
        "iterations": int,
        "proportional": bool,
    },
    "means": KMEDOIDS_OPTIONS,
    "tome": {"proportional": bool},
    "dpcknn": {"neighbours": int, "proportional": bool},
    "kkz": {"metric": ("euclidean", "cosine"), "normalise": bool, "proportional": bool},
}


@dataclass(frozen=True)
class Stage:
    """One clustering: after ``block``, into ``segments``, keeping ``k`` tokens of each.

    With a ``share`` ("1/3", "0.27") ``k`` is 0 until :meth:`Setting.check` knows how many tokens a segment has.
    """

    block: int
    segments: int
    k: int
    share: str = ""

    def __str__(self) -> str:
        return f"B{self.block}-{self.segments},{self.share or self.k}"


@dataclass(frozen=True)
class Setting:
    """A clustering setting. ``str()`` gives the notation back; :meth:`parse` reads it.

    With a ``chooser``, a function that chooses tokens in place of the method, it prints as ``custom(name):B6-4,49``,
    which nothing but the function itself can open again.
    """

    method: str = "none"
    stages: tuple[Stage, ...] = ()
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    chooser: Callable[..., Any] | None = None

    @classmethod
    def parse(cls, text: "str | Setting") -> "Setting":
        """Read the paper's notation; raises SettingError with what is wrong and what is valid."""
        if isinstance(text, Setting):
            return text
        if not isinstance(text, str) or not text.strip():
            raise SettingError(f"a clustering setting is a string such as {EXAMPLES}, got {text!r}")
        head, colon, tail = text.strip().partition(":")
        if not colon and re.match(r"\s*[bB]\s*_?\d", head):
            head, tail = "kmedoids", head
        method, options = _method(head, text)
        if method in UNSTAGED:
            if tail.strip():
                raise SettingError(f'"{text}": {method} takes no blocks, write just "{method}"')
            return cls(method)
        stages = _stages(tail, text)
        if not stages:
            raise SettingError(f'"{text}": {method} needs a stage, for example "{method}:B6-4,49"')
        return cls(method, stages, options)

    def __str__(self) -> str:
        if not self.stages:
            return self.method
        options = ",".join(name if value is True else f"{name}={_plain(value)}" for name, value in self.options.items())
        method = f"custom({name_of(self.chooser)})" if self.chooser else self.method
        head = method + (f"[{options}]" if options else "")
        stages = " ".join(str(stage) for stage in self.stages)
        return stages if head == "kmedoids" else f"{head}:{stages}"

    def with_chooser(self, chooser: Callable[..., Any] | None) -> "Setting":
        """The setting with a function in place of its method; None leaves it as it is."""
        if chooser is None:
            return self
        if not self.stages or self.method == "pooling":
            raise SettingError(f'"{self}" chooses no tokens; with a chooser, write a stage such as "B6-4,49"')
        return replace(self, chooser=chooser)

    @property
    def proportional(self) -> bool:
        """Whether later attention weighs a token by the number of tokens it stands for."""
        return bool(self.options.get("proportional", self.merges))

    @property
    def merges(self) -> bool:
        """Whether a token that is kept is the mean of its cluster."""
        return self.method in MERGING or bool(self._setting_of_extension("merge"))

    @property
    def needs_torch(self) -> bool:
        """Whether the method runs on torch alone: it reaches inside a block, or is a function for tensors."""
        return self.chooser is not None or self.method in INSIDE_BLOCKS or self._setting_of_extension("numpy") is False

    def _setting_of_extension(self, name: str) -> bool | None:
        """What a method of someone else was registered with; None for one that is built in."""
        extension = None if self.method in STAGED + UNSTAGED else methods.get(self.method)
        return None if extension is None else bool(extension.settings.get(name))

    def segments(self, frames: int) -> int:
        """How many vectors a video of ``frames`` frames gets: one a segment, or one a frame."""
        return self.stages[-1].segments if self.stages else frames

    def check(self, *, blocks: int, frames: int, patches: int) -> "Setting":
        """Raise SettingError unless the setting fits a model and a number of frames.

        Args:
            blocks: transformer blocks of the vision tower.
            frames: frames taken of a video.
            patches: patch tokens of a frame.

        Returns:
            The setting, in which every stage has its ``k``; it prints as before.
        """
        if frames < 1:
            raise SettingError(f"a video needs at least 1 frame, got {frames}")
        sequences, length, block = frames, patches, 0
        stages: list[Stage] = []
        for stage in self.stages:
            where = f'"{self}"'
            if not 1 <= stage.block < blocks:
                raise SettingError(
                    f"{where}: the model has {blocks} blocks, so clustering can come after block 1 to "
                    f"{blocks - 1}, not {stage.block}"
                )
            if stage.block <= block:
                raise SettingError(f"{where}: blocks must increase, but B{stage.block} follows B{block}")
            if stage.segments > sequences and block:
                raise SettingError(
                    f"{where}: segments cannot grow from {sequences} to {stage.segments}; {divisors(sequences)}"
                )
            if stage.segments < 1 or sequences % stage.segments:
                what = "segments" if block else "frames"
                raise SettingError(
                    f"{where}: {sequences} {what} cannot be cut into {stage.segments} equal segments; "
                    f"{divisors(sequences)}"
                )
            available = length * (sequences // stage.segments)
            if stage.share:
                stage = replace(stage, k=max(1, round(Fraction(stage.share) * available)))
            if self.method == "pooling" and stage.k != length:
                raise SettingError(
                    f"{where}: pooling keeps the {length} positions of a frame, write "
                    f"pooling:B{stage.block}-{stage.segments},{length}"
                )
            if not 1 <= stage.k <= available:
                raise SettingError(
                    f"{where}: K = {stage.k}, but a segment has {available} tokens "
                    f"({sequences // stage.segments} x {length}); K can be 1 to {available}"
                )
            stages.append(stage)
            sequences, length, block = stage.segments, stage.k, stage.block
        return replace(self, stages=tuple(stages))


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called."""
    return str(getattr(function, "__name__", type(function).__name__))


def divisors(count: int) -> str:
    """``choose 1, 2, 3, 6``: the numbers of equal parts that ``count`` can be cut into."""
    return "choose " + ", ".join(str(s) for s in range(1, count + 1) if count % s == 0)


def _method(head: str, text: str) -> tuple[str, dict[str, Any]]:
    match = re.fullmatch(r"\s*([\w+-]+)\s*(?:\[(.*)\])?\s*", head)
    name = match[1].lower() if match else head.strip().lower()
    name = ALIASES.get(name, name)
    if name.startswith("custom("):
        raise SettingError(
            f'"{text}": a method of your own; pass its function again (chooser=), or name another method'
        )
    if match and name in STAGED + UNSTAGED:
        return name, _options(name, OPTIONS.get(name, {}), match[2] or "", text)
    extension = methods.get(name)
    if not match or extension is None:
        known = [*STAGED, *UNSTAGED, *methods.names()]
        near = get_close_matches(name, known, n=1)
        hint = f' (did you mean "{near[0]}"?)' if near else ""
        raise MissingMethod(
            f'"{text}": no method "{head.strip()}"{hint}; methods are {", ".join(known)}. Examples: {EXAMPLES}'
        )
    return name, _options(name, {**extension.options, "proportional": bool}, match[2] or "", text)


def _options(method: str, known: dict[str, tuple[str, ...] | type], inside: str, text: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        kind = known.get(name)
        if kind is None:
            takes = f"{method} takes {', '.join(known)}" if known else f"{method} takes no options"
            raise SettingError(f'"{text}": no option "{name}"; {takes}')
        options[name] = _value(name, kind, value if equals else "true", text)
    return options


def _value(name: str, kind: tuple[str, ...] | type, value: str, text: str) -> Any:
    if isinstance(kind, tuple):
        if value not in kind:
            raise SettingError(f'"{text}": {name} must be {" or ".join(kind)}, got "{value}"')
        return value
    if kind is bool:
        if value not in ("true", "false"):
            raise SettingError(f'"{text}": {name} must be true or false, got "{value}"')
        return value == "true"
    if name == "sigma" and value == "median":
        return value
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or not 0 < number < float("inf"):
        more = ' or "median"' if name == "sigma" else ""
        raise SettingError(f'"{text}": {name} must be a positive number{more}, got "{value}"') from None
    return number


def _stages(tail: str, text: str) -> tuple[Stage, ...]:
    stages = []
    for stage in re.sub(r"\s*([-,_/])\s*", r"\1", tail).split():
        match = re.fullmatch(r"[bB]_?(\d+)-(\d+),(?:(\d+)|(\d+/\d+|\d*\.\d+))", stage)
        if not match:
            raise SettingError(
                f'"{text}": cannot read "{stage}"; a stage is B<block>-<segments>,<centres per segment> (B6-4,49), '
                "or with a share of the segment's tokens (B6-4,1/3)"
            )
        block, segments, k, share = match.groups(default="")
        if share and not (re.search("/0*$", share) is None and 0 < Fraction(share) <= 1):
            raise SettingError(f'"{text}": a share of the tokens is more than 0 and at most 1, not {share}')
        stages.append(Stage(int(block), int(segments), int(k or 0), share))
    return tuple(stages)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
