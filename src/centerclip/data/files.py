"""Finds video files by id: one walk, then ids are looked up in what was found and never joined to a path."""

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..files import VIDEO_SUFFIXES, videos_below
from .errors import AnnotationError, DataError


def without_extension(name: str) -> str:
    """A file name without its extension, if that is one of a video: ids such as ``film_00.23.28.886`` have dots too."""
    stem, dot, extension = name.rpartition(".")
    return stem if dot and f".{extension.lower()}" in VIDEO_SUFFIXES else name


def walk_videos(root: Path, *, skip: Path | None = None) -> Iterator[Path]:
    """All video files under ``root``, in a fixed order; hidden ones and the folder ``skip`` are passed by."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Name the folder that holds the videos with --root.")
    yield from videos_below(root, {os.path.realpath(skip)} if skip else set())


@dataclass(frozen=True)
class VideoFiles:
    """The video files of one folder by id: a name or a relative path, with or without its extension."""

    root: Path
    paths: dict[str, Path]

    @classmethod
    def under(cls, root: Path) -> "VideoFiles":
        """Walk ``root``. Of several files with the same id the one in the outermost folder counts."""
        found = [(path.relative_to(root), path) for path in walk_videos(root)]
        found.sort(key=lambda entry: (len(entry[0].parts), entry[0]))
        paths: dict[str, Path] = {}
        for relative, path in found:
            for key in (relative.as_posix(), relative.name):
                paths.setdefault(_plain(key), path)
                paths.setdefault(_plain(without_extension(key)), path)
        return cls(root, paths)

    def find(self, video: str) -> Path | None:
        """The file of a video, or None. An id that points outside the folder is an error, whatever lies there.

        ``dog.mov`` also finds ``dog.mp4``: small copies have another extension than their originals.
        """
        key = PurePosixPath(_plain(video.replace("\\", "/")))
        if key.is_absolute() or ".." in key.parts or "\0" in video:
            raise AnnotationError(f"video {video!r} points outside {self.root}; ids are names or relative paths.")
        return self.paths.get(str(key)) or self.paths.get(without_extension(str(key)))


def _plain(key: str) -> str:
    """One spelling for names that some systems store with separate accents."""
    return unicodedata.normalize("NFC", key)
