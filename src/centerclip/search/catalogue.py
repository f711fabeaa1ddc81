"""Which files belong to which video, and which videos pass the filters."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, time
from fnmatch import fnmatch
from pathlib import Path

from .errors import SearchError
from .store import File, Video, View
from .walk import is_below

When = float | str | date | datetime | None


@dataclass(frozen=True)
class Filters:
    """Which files count. A video counts when one of its files does.

    Attributes:
        folder: only files below it.
        name: part of the file's name, or a pattern with ``*`` and ``?``; capitals do not matter.
        min_duration: seconds.
        max_duration: seconds.
        after: files changed at this time or later, seconds since 1970.
        before: files changed before this time.
    """

    folder: str | None = None
    name: str | None = None
    min_duration: float | None = None
    max_duration: float | None = None
    after: float | None = None
    before: float | None = None

    def any(self) -> bool:
        """Whether there is any filter at all."""
        return self != Filters()

    def keep_video(self, video: Video) -> bool:
        """Whether the length fits."""
        low, high = self.min_duration, self.max_duration
        return (low is None or video.duration >= low) and (high is None or video.duration <= high)

    def keep_file(self, file: File) -> bool:
        """Whether place, name and date fit."""
        if self.folder is not None and not is_below(file.path, self.folder):
            return False
        if self.name is not None and not _matches(Path(file.path).name, self.name):
            return False
        changed = file.modified / 1e9
        return (self.after is None or changed >= self.after) and (self.before is None or changed < self.before)


class Catalogue:
    """The files of every video, at one moment of the store. A video without a file is on its way out: not shown."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.videos = view.videos
        self.files: dict[str, list[File]] = defaultdict(list)
        for file in view.files.values():
            if file.video in self.videos:
                self.files[file.video].append(file)
        self.complete = len(self.files) == len(self.videos)

    def among(self, filters: Filters) -> list[str] | None:
        """The videos that pass; None when all do."""
        if not filters.any():
            return None if self.complete else list(self.files)
        return [
            video
            for video, files in self.files.items()
            if filters.keep_video(self.videos[video]) and any(filters.keep_file(file) for file in files)
        ]

    def files_of(self, video: str, filters: Filters | None = None) -> list[File]:
        """The files of a video, those that pass the filters first."""
        files = sorted(self.files.get(video, ()), key=lambda file: file.path)
        return files if filters is None else sorted(files, key=lambda file: not filters.keep_file(file))


def seconds_of(when: When, *, option: str) -> float | None:
    """A time as seconds since 1970; text as ``2024``, ``2024-05``, ``2024-05-31`` or with a time of day."""
    if when is None or isinstance(when, float | int):
        return when
    if isinstance(when, str):
        text = when.strip()
        padded = text + "-01-01" if len(text) == 4 else text + "-01" if len(text) == 7 else text
        try:
            when = datetime.fromisoformat(padded)
        except ValueError as error:
            raise SearchError(f"{option}: {when!r} is no date; write it as 2024, 2024-05 or 2024-05-31") from error
    if not isinstance(when, datetime):
        when = datetime.combine(when, time())
    return when.timestamp()


def _matches(name: str, wanted: str) -> bool:
    name, wanted = name.casefold(), wanted.casefold()
    return fnmatch(name, wanted) if any(letter in wanted for letter in "*?[") else wanted in name
