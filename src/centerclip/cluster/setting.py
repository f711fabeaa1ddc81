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
    rlt:B0-4,98 kmedoids:B6-4,49   a method of its own for each stage; B0 is before the first block

Beyond the paper, with the same number of tokens: ``means`` (the mean of each k-medoids++ cluster, which later
attention weighs by its size), ``tome`` (bipartite soft matching), ``tempme`` (the same, between frames first),
``rlt`` (patches that changed, before block 1), ``dpcknn`` (density peaks), ``kkz`` (farthest points), ``attention``
(what [CLASS] looks at) and ``random``. Every one takes ``proportional``, ``class`` (how the [CLASS] tokens of a
segment become one) and ``budget``. Methods of others have a name too (:mod:`centerclip.extend`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from ..errors import MissingMethod, SettingError
from ..extend import methods

MERGING = ("means", "tome", "tempme")  # a token kept is the mean of its cluster
STAGED = ("kmedoids", "spectral", "pooling", "sampling", *MERGING, "rlt", "dpcknn", "kkz", "attention", "random")
INSIDE_BLOCKS = ("token-shift", "temporal-shift", "attention")  # these reach inside a block
UNSTAGED = ("none", "token-shift", "temporal-shift")
methods.reserve([*STAGED, *UNSTAGED])
ALIASES = {"k-medoids": "kmedoids", "k-medoids++": "kmedoids", "kmedoids++": "kmedoids"}
EXAMPLES = '"B6-4,49", "B6-4,1/3", "spectral:B6-3,49", "B4-6,49 B8-3,49", "token-shift" or "none"'
# What the stage does with what a method chose: any that chooses tokens takes it.
STAGE_OPTIONS: dict[str, tuple[str, ...] | type] = {
    "proportional": bool,  # later attention weighs a token by the number of tokens it stands for
    "class": ("mean", "kept"),  # of a segment's [CLASS] tokens: their mean, or weighed by the tokens kept of each frame
    "budget": ("equal", "change"),  # K for every segment, or more for segments that change more; as many in all
}
KMEDOIDS_OPTIONS: dict[str, tuple[str, ...] | type] = {
    "metric": ("euclidean", "cosine"),
    "normalise": bool,
    "centre": ("medoid", "nearest-to-mean"),
    "iterations": int,
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
    },
    "means": KMEDOIDS_OPTIONS,
    "tempme": {"across": float},
    "dpcknn": {"neighbours": int},
    "kkz": {"metric": ("euclidean", "cosine"), "normalise": bool},
}


@dataclass(frozen=True)
class Stage:
    """One clustering: after ``block`` (0 for before the first), into ``segments``, keeping ``k`` tokens of each.

    With a ``share`` ("1/3", "0.27") ``k`` is 0 until :meth:`Setting.check` knows how many tokens a segment has.
    ``method`` and its ``options`` are the setting's own where they are empty.
    """

    block: int
    segments: int
    k: int
    share: str = ""
    method: str = ""
    options: dict[str, Any] = field(default_factory=dict, hash=False)

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
        first, *others = _parts(text.strip())
        method, options = _method(first[0], text)
        if method in UNSTAGED:
            if others or first[1].strip():
                raise SettingError(f'"{text}": {method} takes no blocks, write just "{method}"')
            return cls(method)
        stages: list[Stage] = []
        for head, tail in (first, *others):
            name, chosen = (method, options) if not stages else _method(head, text)
            of_method = () if name in UNSTAGED else _stages(tail, text)
            if not of_method:
                raise SettingError(f'"{text}": {name} needs a stage, for example "{name}:B6-4,49"')
            own: dict[str, Any] = {} if (name, chosen) == (method, options) else {"method": name, "options": chosen}
            stages += [replace(stage, **own) for stage in of_method]
        return cls(method, tuple(stages), options)

    def __str__(self) -> str:
        if not self.stages:
            return self.method
        words, before = [], ""
        for number, stage in enumerate(self.stages):
            part = self.of_stage(number)
            options = (name if value is True else f"{name}={_plain(value)}" for name, value in part.options.items())
            method = f"custom({name_of(self.chooser)})" if self.chooser else part.method
            head = method + (f"[{','.join(options)}]" if part.options else "")
            words.append(str(stage) if head == (before or "kmedoids") else f"{head}:{stage}")
            before = head
        return " ".join(words)

    def of_stage(self, number: int) -> "Setting":
        """The setting with the method and options of one stage as its own; all stages stay."""
        stage = self.stages[number]
        return replace(self, method=stage.method, options=stage.options) if stage.method else self

    def with_chooser(self, chooser: Callable[..., Any] | None) -> "Setting":
        """The setting with a function in place of its method; None leaves it as it is."""
        if chooser is None:
            return self
        if not self.stages or self.method == "pooling" or any(stage.method for stage in self.stages):
            raise SettingError(f'"{self}" chooses no tokens; with a chooser, write a stage such as "B6-4,49"')
        return replace(self, chooser=chooser)

    @property
    def proportional(self) -> bool:
        """Whether later attention weighs a token by the number of tokens it stands for."""
        return bool(self.options.get("proportional", self.merges or self.method == "rlt"))

    @property
    def merges(self) -> bool:
        """Whether a token that is kept is the mean of its cluster."""
        return self.method in MERGING or bool(self._setting_of_extension("merge"))

    @property
    def follows_content(self) -> bool:
        """Whether segments that change more keep more tokens."""
        return self.options.get("budget") == "change"

    @property
    def parts(self) -> "list[Setting]":
        """The setting of each stage (:meth:`of_stage`); itself where there is none."""
        return [self.of_stage(number) for number in range(len(self.stages))] or [self]

    @property
    def needs_torch(self) -> bool:
        """Whether it runs on torch alone: inside a block or before the first, or by a function for tensors."""
        return (
            self.chooser is not None
            or any(
                part.method in INSIDE_BLOCKS or part.follows_content or part._setting_of_extension("numpy") is False
                for part in self.parts
            )
            or any(stage.block == 0 for stage in self.stages)
        )

    def _setting_of_extension(self, name: str) -> bool | None:
        """What a method of someone else was registered with; None for one that is built in."""
        extension = None if self.method in STAGED + UNSTAGED else methods.get(self.method)
        return None if extension is None else bool(extension.settings.get(name))

    def segments(self, frames: int) -> int:
        """How many vectors a video of ``frames`` frames gets: one a segment, or one a frame."""
        return self.stages[-1].segments if self.stages else frames

    def for_segment(self, frames: int, *, window: int, blocks: int, patches: int) -> "Setting | None":
        """The setting for a single segment of so many frames, which keeps as many tokens as one of a whole window.

        So a share of the tokens of three frames is the same number of two, and all tokens of one: segments that a cut
        has made short lose nothing. None where a segment depends on others, or passes several stages.

        Args:
            frames: of the segment.
            window: frames of a window, which the setting cuts into its segments.
            blocks: transformer blocks of the vision tower.
            patches: patch tokens of a frame.
        """
        if not self.stages:
            return self if self.method == "none" else None
        if len(self.stages) > 1 or self.follows_content or self.method == "rlt":
            return None
        (stage,) = self.check(blocks=blocks, frames=window, patches=patches).stages
        alone = replace(stage, segments=1, k=min(stage.k, frames * patches), share="")
        return replace(self, stages=(alone,)).check(blocks=blocks, frames=frames, patches=patches)

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
        sequences, length, block = frames, patches, -1
        stages: list[Stage] = []
        for number, stage in enumerate(self.stages):
            where, part = f'"{self}"', self.of_stage(number)
            if not 0 <= stage.block < blocks:
                raise SettingError(
                    f"{where}: the model has {blocks} blocks, so clustering can come after block 1 to "
                    f"{blocks - 1}, or before the first (B0), not {stage.block}"
                )
            if (stage.block == 0) < (part.method == "rlt") or ((stage.block == 0) and part.method == "attention"):
                raise SettingError(
                    f"{where}: rlt compares pixels, so it comes before the first block: rlt:B0-4,1/2; attention is "
                    "that of a block, so it comes after one"
                )
            if stage.block <= block:
                raise SettingError(f"{where}: blocks must increase, but B{stage.block} follows B{block}")
            if stage.segments > sequences and stages:
                raise SettingError(
                    f"{where}: segments cannot grow from {sequences} to {stage.segments}; {divisors(sequences)}"
                )
            if stage.segments < 1 or sequences % stage.segments:
                what = "segments" if stages else "frames"
                raise SettingError(
                    f"{where}: {sequences} {what} cannot be cut into {stage.segments} equal segments; "
                    f"{divisors(sequences)}"
                )
            if part.follows_content and number + 1 < len(self.stages):
                raise SettingError(f"{where}: with budget=change no other stage can follow")
            available = length * (sequences // stage.segments)
            if stage.share:
                stage = replace(stage, k=max(1, round(Fraction(stage.share) * available)))
            if part.method == "pooling" and stage.k != length:
                raise SettingError(
                    f"{where}: pooling keeps the {length} positions of a frame, write "
                    f"pooling:B{stage.block}-{stage.segments},{length}"
                )
            least = length if part.method == "rlt" else 1  # the first frame of a segment
            if not least <= stage.k <= available:
                raise SettingError(
                    f"{where}: K = {stage.k}, but a segment has {available} tokens "
                    f"({sequences // stage.segments} x {length}); K can be {least} to {available}"
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


def _parts(text: str) -> list[tuple[str, str]]:
    """``method[options]`` and the stages after its colon, for each method that is named."""
    head, colon, tail = text.partition(":")
    if re.match(r"\s*[bB]\s*_?\d", head):
        head, colon, tail = "kmedoids", ":", text
    later = re.search(r"\s([a-zA-Z][\w+-]*\s*(?:\[[^\]]*\])?\s*:.*)", tail, re.DOTALL)
    if not colon or later is None:
        return [(head, tail)]
    return [(head, tail[: later.start()]), *_parts(later[1])]


def _method(head: str, text: str) -> tuple[str, dict[str, Any]]:
    match = re.fullmatch(r"\s*([\w+-]+)\s*(?:\[(.*)\])?\s*", head)
    name = match[1].lower() if match else head.strip().lower()
    name = ALIASES.get(name, name)
    if name.startswith("custom("):
        raise SettingError(
            f'"{text}": a method of your own; pass its function again (chooser=), or name another method'
        )
    if match and name in STAGED + UNSTAGED:
        shared = {} if name in (*UNSTAGED, "pooling") else STAGE_OPTIONS
        return name, _options(name, {**OPTIONS.get(name, {}), **shared}, match[2] or "", text)
    extension = methods.get(name)
    if not match or extension is None:
        known = [*STAGED, *UNSTAGED, *methods.names()]
        near = get_close_matches(name, known, n=1)
        hint = f' (did you mean "{near[0]}"?)' if near else ""
        raise MissingMethod(
            f'"{text}": no method "{head.strip()}"{hint}; methods are {", ".join(known)}. Examples: {EXAMPLES}'
        )
    return name, _options(name, {**extension.options, **STAGE_OPTIONS}, match[2] or "", text)


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
