"""What every benchmark file says about itself: how a split is read, and what the papers say it holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .annotations import AnnotationFiles, Captions


@dataclass(frozen=True)
class Published:
    """How many videos and captions a split has in the papers; captions are None where they do not say."""

    videos: int
    captions: int | None = None


@dataclass(frozen=True)
class Format:
    """One benchmark.

    Args:
        name: what people type.
        read: ``(files, split) -> {video id: captions}`` for the splits ``train``, ``val`` and ``test``.
        published: figures by split, or by splits together such as ``train+val`` when ``val`` is held out of the
            training list.
        note: one line about the splits, for people.
    """

    name: str
    read: Callable[[AnnotationFiles, str], Captions]
    published: Mapping[str, Published] = field(default_factory=dict)
    note: str = ""
