"""Finds the video files below folders."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

# What a folder is searched for; a file that is named may be called anything.
VIDEO_SUFFIXES = frozenset(
    {".3g2", ".3gp", ".asf", ".avi", ".divx", ".dv", ".f4v", ".flv", ".gif", ".h264", ".hevc", ".ivf", ".m2ts", ".m2v"}
    | {".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".ogg", ".ogv", ".rm", ".rmvb", ".ts"}
    | {".vob", ".webm", ".wmv", ".wtv", ".y4m"}
)


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
            for path in self._below(root, entered) if root.is_dir() else [root]:
                if path not in files:
                    files.add(path)
                    yield path

    def _below(self, root: Path, entered: set[str]) -> Iterator[Path]:
        for folder, subfolders, names in os.walk(root, followlinks=True, onerror=self._note):
            real = os.path.realpath(folder)
            if real in entered:
                subfolders.clear()
                continue
            entered.add(real)
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                if not name.startswith(".") and Path(name).suffix.lower() in VIDEO_SUFFIXES:
                    yield Path(folder, name)

    def _note(self, error: OSError) -> None:
        self.unreadable[str(error.filename)] = error.strerror or str(error)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
