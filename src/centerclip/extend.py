"""Clustering methods, data sets and backbones of your own, without a change to this code (docs/extending.md).

In a program or a notebook a decorator registers one::

    @method("grid")
    def grid(tokens, k, *, offset: int = 0):
        return ids  # [B, K]

An installed package names it in its ``pyproject.toml``, and every ``centerclip`` command knows it from then on::

    [project.entry-points."centerclip.methods"]
    grid = "my_package:grid"

The groups are ``centerclip.methods``, ``centerclip.datasets`` and ``centerclip.backbones``.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeVar, get_args, get_origin

from .errors import ExtensionError, first_line

Target = TypeVar("Target", bound=Callable[..., Any])
NAME = re.compile(r"[a-z0-9][a-z0-9_+-]*")


@dataclass(frozen=True)
class Extension:
    """Something that was registered."""

    name: str
    target: Any  # the function or class
    origin: str  # the package with its version, or the module of the decorator
    settings: Mapping[str, Any] = field(default_factory=dict)  # what the decorator was given

    @property
    def title(self) -> str:
        """The first line of its docstring; its name where it has none."""
        return (inspect.getdoc(self.target) or self.name).splitlines()[0].rstrip(".")

    @property
    def options(self) -> dict[str, tuple[str, ...] | type]:
        """The keyword-only parameters of a function: name -> ``int``, ``float``, ``bool``, or the values of a Literal.

        Raises:
            ExtensionError: a parameter has another type, or none.
        """
        options: dict[str, tuple[str, ...] | type] = {}
        for parameter in inspect.signature(self.target, eval_str=True).parameters.values():
            if parameter.kind is not parameter.KEYWORD_ONLY:
                continue
            kind = parameter.annotation
            if get_origin(kind) is Literal:
                options[parameter.name] = tuple(map(str, get_args(kind)))
            elif kind in (int, float, bool):
                options[parameter.name] = kind
            else:
                raise ExtensionError(
                    f'option "{parameter.name}" of "{self.name}" ({self.origin}) needs a type: int, float, bool or '
                    "Literal[...] of strings"
                )
        return options


class Registry:
    """What is registered under one group of entry points."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._known: dict[str, Extension] = {}
        self._built_in: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """Keep the names of what is built in."""
        self._built_in.update(names)

    def register(self, name: str, settings: Mapping[str, Any]) -> Callable[[Target], Target]:
        """A decorator that registers what it decorates; the same name again replaces it."""
        if not NAME.fullmatch(name) or name in self._built_in:
            why = "is built in" if name in self._built_in else "must be of the characters a-z, 0-9, -, _ and +"
            raise ExtensionError(f'the name "{name}" {why}; choose another')

        def decorate(target: Target) -> Target:
            self._known[name] = Extension(name, target, getattr(target, "__module__", "?"), settings)
            return target

        return decorate

    def get(self, name: str) -> Extension | None:
        """What is registered under a name, by a decorator or by an installed package; None where nothing is.

        Raises:
            ExtensionError: a package has it, but it cannot be imported.
        """
        entry = None if name in self._known else self._entry_points().get(name)
        if entry is not None:
            origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
            try:
                target = entry.load()  # a decorator inside registers it, with its settings
            except Exception as error:  # the package may do anything
                raise ExtensionError(f'"{name}" of {origin} cannot be loaded: {first_line(error)}') from error
            decorated = [each.settings for each in self._known.values() if each.target is target]
            self._known[name] = Extension(name, target, origin, decorated[0] if decorated else {})
        return self._known.get(name)

    def names(self) -> list[str]:
        """The names of everything that is registered or installed, sorted; nothing is imported."""
        return sorted({*self._known, *self._entry_points()})

    def _entry_points(self) -> dict[str, EntryPoint]:
        found = entry_points(group=self.group)
        return {each.name: each for each in found if each.name not in self._built_in and NAME.fullmatch(each.name)}


methods = Registry("centerclip.methods")
datasets = Registry("centerclip.datasets")
backbones = Registry("centerclip.backbones")


def method(name: str, *, merge: bool = False, numpy: bool = False) -> Callable[[Target], Target]:
    """Register a token-reduction method, to be used as ``"name:B6-4,49"`` wherever a clustering is named.

    The function is ``(tokens [B, N, D], k, **options) -> ids [B, K]``, or it returns
    :class:`~centerclip.cluster.Clusters`: ids, and the cluster of every token, ``[B, N]``. Tokens are those of one
    segment, frame by frame. It is called without gradients; they flow through the tokens that are kept. Keyword-only
    parameters with a type become its options: ``"name[offset=1]:B6-4,49"``.

    Args:
        name: of the method, in small letters.
        merge: a token that is kept is the mean of its cluster; the function must return Clusters.
        numpy: the function takes NumPy arrays too, so that it also runs without torch, on ONNX Runtime.
    """
    return methods.register(name, {"merge": merge, "numpy": numpy})


def dataset(
    name: str, *, published: Mapping[str, tuple[int, int]] | None = None, note: str = ""
) -> Callable[[Target], Target]:
    """Register a data set, to be used like ``msrvtt`` in ``train``, ``evaluate``, ``features`` and ``data verify``.

    The function is ``(files: AnnotationFiles, split) -> {video id: [caption, ...]}`` for the splits ``"train"``,
    ``"val"`` and ``"test"``. An id is the name of a video below ``--root``, with or without its suffix.

    Args:
        name: of the data set, in small letters.
        published: split -> how many videos and captions it must have, for ``data verify``.
        note: one line about the splits, for people.
    """
    return datasets.register(name, {"published": published or {}, "note": note})


def backbone(model_type: str) -> Callable[[Target], Target]:
    """Register a model class for the ``model_type`` that stands in a model folder's ``config.json``.

    It is a ``transformers.PreTrainedModel`` with ``get_image_features(pixel_values)`` and
    ``get_text_features(input_ids, attention_mask)``, whose results have ``pooler_output [B, D]``; with
    ``vision_model`` (a stack of transformer blocks) and ``logit_scale``; and ``vision_config`` and ``text_config`` in
    its configuration.
    """
    return backbones.register(model_type, {})
