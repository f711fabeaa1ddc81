"""Finds the video files below folders."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..files import videos_below


class Walk:
    """The video files of folders and single files, each once, in a fixed order.

    Linked folders are followed, since films often live on another disk, but each real folder is entered once. Hidden
    files and folders are passed by.

    Attributes:
        unreadable: folders that could not be listed, with the reason; complete when the walk is over.
    """

    def __init__(self, roots: Iterable[Path], *, skip: Path | None = None) -> None:
        self.roots = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100 - links stay as they are named
        self.skip = skip
        self.unreadable: dict[str, str] = {}

    def __iter__(self) -> Iterator[Path]:
        entered = {os.path.realpath(self.skip)} if self.skip else set()
        files: set[Path] = set()
        for root in self.roots:
            for path in videos_below(root, entered, on_error=self._note) if root.is_dir() else [root]:
                if path not in files:
                    files.add(path)
                    yield path

    def _note(self, error: OSError) -> None:
        self.unreadable[str(error.filename)] = error.strerror or str(error)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
