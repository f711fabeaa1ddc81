"""Moves an index between stores, a folder and a server, without encoding anything."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from ..errors import IndexNotFound, OtherSettings
from .index import AnyPath, open_database
from .indexer import MOUNTS, SIDECARS
from .ranking import CALIBRATION, Calibration
from .store import AddedVideo, TextSource

VIDEOS_AT_A_TIME = 100
SOURCES: tuple[TextSource, ...] = ("spoken", "written")  # of text that was recognised, also where nothing was


@dataclass(frozen=True)
class Copied:
    """What was copied; what the target had already is not counted."""

    videos: int = 0
    segments: int = 0
    files: int = 0


def copy_index(
    source: AnyPath, target: AnyPath, on_progress: Callable[[int, int], None] = lambda done, of: None
) -> Copied:
    """Copy an index into a new one, or into one of the same model; run again, it goes on where it was stopped.

    Args:
        source: a folder, or ``milvus://host:19530/name``.
        target: another.
        on_progress: called with the videos that are copied, and how many there are.
    """
    _, database = open_database(source)
    _, to = open_database(target)
    settings = database.settings()
    view = database.store(settings).view()
    with to.writing():
        try:
            there = to.settings()
        except IndexNotFound:
            to.save_settings(settings, clear=True)
        else:
            if there.vectors_id != settings.vectors_id:
                raise OtherSettings(
                    f"the index {to.address} was made with {there.describe()}, {database.address} with "
                    f"{settings.describe()}: vectors of two kinds cannot be compared. Name another index"
                )
        store = to.store(settings)
        done = videos = segments = files = 0
        total, ids = len(view.videos), iter(view.videos)
        recognised = {kind: view.read_videos(kind) for kind in SOURCES}
        while some := list(islice(ids, VIDEOS_AT_A_TIME)):
            known = store.view().with_files(some)
            found = view.with_files(some)
            added: list[AddedVideo] = [
                (video, view.segments(id), view.lines(id)) for id, (video, _) in found.items() if id not in known
            ]
            copies = [file for id, (_, each) in found.items() if id not in known for file in each]
            store.add(added, copies)
            for kind, read in recognised.items():
                for video, _, lines in added:
                    if video.id in read:
                        store.add_lines(video.id, [line for line in lines if line.source == kind], kind)
            videos, files = videos + len(added), files + len(copies)
            segments += sum(len(each) for _, each, _ in added)
            done += len(some)
            on_progress(done, total)
        failed = [file for file in view.files.values() if file.failure]
        store.add([], failed)
        for name in (CALIBRATION, SIDECARS, MOUNTS):
            value = database.store(settings).value(name)
            if value is not None:
                store.set_value(name, value)
        store.tidy(Calibration(store).vectors)
    return Copied(videos, segments, files)
