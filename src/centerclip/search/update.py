"""Brings an index up to date with the folders it was made from: what is new, what moved, what is gone."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

from .indexer import Indexer, Progress
from .opened import OpenIndex
from .results import IndexReport
from .store import Store
from .walk import Walk, is_below


def update(
    index: OpenIndex,
    roots: list[Path],
    *,
    retry: bool,
    decoders: int | None,
    on_progress: Callable[[Progress], None],
) -> IndexReport:
    """Encode what is new or changed below the roots and drop what is gone. The caller holds the lock."""
    report = IndexReport()
    walk = Walk([root for root in roots if root.exists()], skip=index.folder)
    before = index.store.view()
    known = before.files
    todo, seen = [], set()
    for path in walk:
        seen.add(str(path))
        try:
            status = path.stat()
        except OSError as error:
            report.failed[str(path)] = f"unreadable: {error.strerror}"
            continue
        file = known.get(str(path))
        same = file is not None and (file.size, file.modified) == (status.st_size, status.st_mtime_ns)
        if file is None or not same or (file.failure and retry):
            todo.append((path, status.st_size, status.st_mtime_ns))
        elif file.failure:
            report.failed[str(path)] = file.failure
        else:
            report.unchanged += 1
    report.failed |= {folder: f"unreadable: {reason}" for folder, reason in walk.unreadable.items()}
    index.calibration.encode(index.encoder)
    if todo:  # the model is not even opened when nothing is new
        indexer = Indexer(
            index.store,
            index.encoder.model(),
            index.windows,
            decoders=decoders or default_decoders(),
            on_progress=on_progress,
        )
        outcome = indexer.run(todo)
        report.added, report.recognised = outcome.added, outcome.recognised
        report.video_seconds, report.segments = outcome.video_seconds, outcome.segments
        report.failed |= outcome.failed
    _drop_missing(index.store, roots, seen, walk.unreadable, report)
    index.store.tidy(index.calibration.vectors)
    if index.store.view().videos is not before.videos or not len(index.calibration.words):
        index.calibration.measure(index.store.view())
    return report


def _drop_missing(
    store: Store, roots: list[Path], seen: set[str], unreadable: Collection[str], report: IndexReport
) -> None:
    """Drop files that are gone from the folders that were walked; a whole folder that is empty now is kept."""
    known = store.view().files
    gone: set[str] = set()
    for root in roots:
        inside = {path for path in known if is_below(path, str(root))}
        lost = {path for path in inside - seen if not any(is_below(path, folder) for folder in unreadable)}
        if lost and lost == inside and not root.is_file():
            report.not_dropped.append(str(root))
        else:
            gone |= lost
    drop(store, gone)
    report.removed = len(gone)


def drop(store: Store, paths: set[str]) -> None:
    """Remove files, and the videos that are left without any."""
    view = store.view()
    left = {file.video for path, file in view.files.items() if path not in paths}
    orphans = [video for video in view.videos if video not in left]
    if paths or orphans:
        store.remove(orphans, sorted(paths))


def default_decoders() -> int:
    """Files to read at the same time: enough to keep the model busy, few enough to leave it the processor."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, cores // 2))
