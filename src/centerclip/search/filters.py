"""Which videos a search looks at: filters, and how they are worked out where all videos and files are in memory."""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from fnmatch import fnmatch
from functools import cache, cached_property
from typing import Literal

from ..errors import QueryError
from ..files import is_address, is_below
from .store import File, Video

Only = Literal["all", "videos", "photos"]
When = float | str | date | datetime | None
Near = tuple[float, float, float]  # latitude and longitude in degrees, and kilometres around it
EARTH_KM = 6371.0  # radius
KEPT_FILTERS = 16  # whose videos are remembered: of a large collection, finding them takes longer than a search


@dataclass(frozen=True)
class Filters:
    """Which files a search looks at, as :meth:`VideoIndex.search` says. A video passes when one of its files does.

    Times are seconds since 1970; in names and cameras upper and lower case are the same.
    """

    folder: str | None = None
    name: str | None = None
    min_duration: float | None = None
    max_duration: float | None = None
    after: float | None = None
    before: float | None = None
    recorded_after: float | None = None
    recorded_before: float | None = None
    camera: str | None = None
    near: Near | None = None
    only: Only = "all"
    without: str = ""  # id of a video that does not pass

    def keep_video(self, video: Video) -> bool:
        """Whether kind, length, recording date, camera and place pass. What the file does not say does not pass."""
        return (
            self.only in ("all", "videos" if video.duration else "photos")
            and (not self.without or video.id != self.without)
            and _between(video.duration or None, self.min_duration, self.max_duration, inclusive=True)
            and _between(video.recorded, self.recorded_after, self.recorded_before)
            and (self.camera is None or self.camera.casefold() in video.camera.casefold())
            and (self.near is None or _distance(video, self.near) <= self.near[2])
        )

    def keep_file(self, file: File) -> bool:
        """Whether folder, name and date pass."""
        if self.folder is not None and not is_below(file.path, self.folder):
            return False
        if self.name is not None and not _matches(os.path.basename(file.path), self.name):  # noqa: PTH119 - quicker
            return False
        return _between(file.modified / 1e9, self.after, self.before)


@dataclass(frozen=True)
class Totals:
    """What is in a view, counted. A video without a file is being removed, and does not count.

    Attributes:
        videos, photos, files: how many; photographs are videos too, and files that could not be read do not count.
        seconds: length of all videos.
        details: how many videos, without photographs, are indexed how finely.
        failed: path and reason of the files that could not be read.
        offline: videos of which no file is in a folder that is there now.
        offline_roots: those folders.
    """

    videos: int = 0
    photos: int = 0
    files: int = 0
    seconds: float = 0.0
    details: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    offline: int = 0
    offline_roots: frozenset[str] = frozenset()


class Listing:
    """The part of a :class:`~centerclip.search.store.View` that looks videos and files up: all are in memory."""

    videos: Mapping[str, Video]
    files: Mapping[str, File]
    is_listed = True
    finds_text = True

    def with_files(self, videos: Collection[str]) -> dict[str, tuple[Video, list[File]]]:
        return {video: (self.videos[video], self._by_video[video]) for video in videos if video in self._by_video}

    def files_at(self, paths: Iterable[str]) -> dict[str, File]:
        return {path: self.files[path] for path in paths if path in self.files}

    def has_size(self, size: int) -> bool:
        return any(file.size == size for file in self.files.values() if file.video)

    def passing(self, among: Collection[str] | Filters | None) -> Collection[str] | None:
        """The videos that pass filters; None for all. What is no filter stays as it is."""
        if among is None or not isinstance(among, Filters):
            return among
        if among == Filters():
            return None if len(self._by_video) == len(self.videos) else list(self._by_video)
        passing = self._passing.get(among)
        if passing is None:
            passing = [
                video
                for video, files in self._by_video.items()
                if among.keep_video(self.videos[video]) and any(among.keep_file(file) for file in files)
            ]
            if len(self._passing) >= KEPT_FILTERS:
                self._passing.clear()
            self._passing[among] = passing
        return passing

    def totals(self) -> Totals:
        is_offline = offline_check()
        found = [self.videos[video] for video in self._by_video]
        return Totals(
            videos=len(found),
            photos=sum(each.is_photo for each in found),
            files=sum(map(len, self._by_video.values())),
            seconds=sum(each.duration for each in found),
            details=dict(Counter(each.detail or "fine" for each in found if not each.is_photo)),
            failed={path: file.failure for path, file in self.files.items() if file.failure},
            offline=sum(all(map(is_offline, files)) for files in self._by_video.values()),
            offline_roots=frozenset(file.root for file in self.files.values() if is_offline(file)),
        )

    @cached_property
    def _by_video(self) -> dict[str, list[File]]:
        by_video: dict[str, list[File]] = defaultdict(list)
        for file in self.files.values():
            if file.video in self.videos:
                by_video[file.video].append(file)
        return dict(by_video)

    @cached_property
    def _passing(self) -> dict[Filters, list[str]]:
        return {}


def offline_check() -> Callable[[File], bool]:
    """A function that says of a file whether its root is not there now; it looks at each root once.

    A root is not there when it is missing, of another system, or an empty folder, which is what a mount point is
    without its disk. A file that was indexed by its own name is judged by its folder: it alone may just be gone.
    """
    is_missing = cache(_is_missing)

    def is_offline(file: File) -> bool:
        folder = os.path.dirname(file.root) if file.root == file.path else file.root  # noqa: PTH120 - is no Path
        return bool(folder) and is_missing(folder)

    return is_offline


def _is_missing(folder: str) -> bool:
    if is_address(folder):
        return False
    if not os.path.isabs(folder):  # noqa: PTH117 - of another system it is no path at all
        return True
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except (NotADirectoryError, PermissionError):
        return False
    except OSError:
        return True


def seconds_of(when: When, *, option: str) -> float | None:
    """A time as seconds since 1970; text as ``2024``, ``2024-05``, ``2024-05-31`` or with a time of day."""
    if when is None or isinstance(when, float | int):
        return when
    if isinstance(when, str):
        text = when.strip()
        padded = text + "-01-01" if len(text) == 4 else text + "-01" if len(text) == 7 else text
        try:
            return datetime.fromisoformat(padded).timestamp()
        except (ValueError, OverflowError, OSError) as error:  # 0001 is a date, but no computer's clock has shown it
            raise QueryError(f"{option}: {when!r} is not a date; write it as 2024, 2024-05 or 2024-05-31") from error
    return (when if isinstance(when, datetime) else datetime.combine(when, time())).timestamp()


def near_of(text: str | None, *, option: str) -> Near | None:
    """A place as people write it: ``52.37,4.89,10``."""
    if text is None:
        return None
    try:
        latitude, longitude, kilometres = (float(part) for part in text.split(","))
    except ValueError:
        latitude, longitude, kilometres = 0.0, 0.0, -1.0
    if not (abs(latitude) <= 90 and abs(longitude) <= 180 and 0 <= kilometres < math.inf):
        raise QueryError(f"{option}: {text!r} is not a place; write latitude,longitude,kilometres: 52.37,4.89,10")
    return latitude, longitude, kilometres


def _matches(name: str, pattern: str) -> bool:
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatch(name, pattern) if any(letter in pattern for letter in "*?[") else pattern in name


def _between(value: float | None, low: float | None, high: float | None, *, inclusive: bool = False) -> bool:
    if low is None and high is None:
        return True
    if value is None or (low is not None and value < low):
        return False
    return high is None or value < high or (inclusive and value == high)


def _distance(video: Video, near: Near) -> float:
    """Kilometres along the surface of the earth; infinite for a video without a place."""
    if video.latitude is None or video.longitude is None:
        return math.inf
    north, east, there = (math.radians(degrees) for degrees in (video.latitude, video.longitude, near[0]))
    half = math.sin((north - there) / 2) ** 2
    half += math.cos(north) * math.cos(there) * math.sin((east - math.radians(near[1])) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))
