"""Finds video files below a folder, by what they are called."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

# What a folder is searched for; a file that is named may be called anything.
VIDEO_SUFFIXES = frozenset(
    {".3g2", ".3gp", ".asf", ".avi", ".divx", ".dv", ".f4v", ".flv", ".gif", ".h264", ".hevc", ".ivf", ".m2ts", ".m2v"}
    | {".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".ogg", ".ogv", ".rm", ".rmvb", ".ts"}
    | {".vob", ".webm", ".wmv", ".wtv", ".y4m"}
)


def videos_below(root: Path, entered: set[str], *, on_error: Callable[[OSError], None] | None = None) -> Iterator[Path]:
    """All video files below a folder, in a fixed order; hidden files and folders are passed by.

    Linked folders are followed, since films often live on another disk, but each real folder is entered once.

    Args:
        root: the folder.
        entered: real folders not to enter; those that are entered are added.
        on_error: called for a folder that cannot be listed, which is then passed by.
    """
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=on_error):
        real = os.path.realpath(folder)
        if real in entered:
            subfolders.clear()
            continue
        entered.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in VIDEO_SUFFIXES:
                yield Path(folder, name)
