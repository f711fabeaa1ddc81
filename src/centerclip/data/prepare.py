"""Makes a small copy of a folder of videos for quicker training: in parallel, resumable, files complete or absent."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..errors import DataError
from ..files import find_videos, lock_file, remove_partial, write_atomic
from ..parallel import one_thread, run_each, usable_cores
from ..video.encode import EncodeJob, encode
from .formats import without_extension

SETTINGS = "prepare.json"  # in the target folder: how its files were made
REPORT = "prepare-report.json"  # in the target folder: what the last run did


@dataclass
class PrepareReport:
    """What a run did. ``failed`` maps a video's path below the source to the reason; bytes count finished files."""

    done: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    source_bytes: int = 0
    target_bytes: int = 0
    seconds: float = 0.0


def prepare(
    source: str | Path,
    target: str | Path,
    *,
    fps: float = 3.0,
    short_side: int = 224,
    workers: int | None = None,
    timeout: float | None = None,
    on_progress: Callable[[int, int], None] = lambda finished, total: None,
) -> PrepareReport:
    """Re-encode every video of ``source`` into the same place below ``target``, as ``.mp4``.

    A copy that exists and is not older than its source is skipped, so a stopped run can be resumed. A video that fails
    is listed in the report and does not stop the others.

    Args:
        source: a folder.
        target: a folder; created if needed. It has one fps and size: other settings need another folder.
        fps: frames per second of the copies.
        short_side: pixels; smaller videos keep their size.
        workers: processes, by default one per core.
        timeout: seconds that one video may take, by default unlimited.
        on_progress: called with (finished, total) at the start and after each video.
    """
    source, target = Path(source).expanduser(), Path(target).expanduser()
    if fps <= 0 or short_side < 2 or (workers is not None and workers < 1):
        raise DataError("fps and workers must be positive, and the short side at least 2 pixels.")
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of videos.")
    if source.resolve() == target.resolve():
        raise DataError(f"{target} is the folder of the originals; name another folder for the copies.")
    started = time.monotonic()
    target.mkdir(parents=True, exist_ok=True)
    report = PrepareReport()
    with _locked(target, {"fps": fps, "short_side": short_side}):
        remove_partial(target)  # of a run that was killed
        jobs = _plan(source, target, fps, short_side, report)
        todo = [job for job in jobs if not _is_done(job)]
        report.skipped = len(jobs) - len(todo)
        total = len(jobs) + len(report.failed)
        finished = total - len(todo)
        on_progress(finished, total)
        try:
            running = run_each(encode, todo, workers=workers or usable_cores(), timeout=timeout, setup=one_thread)
            with closing(running) as outcomes:
                for outcome in outcomes:
                    if outcome.error is not None:
                        report.failed[_name(outcome.job.source, source)] = outcome.error
                    finished += 1
                    on_progress(finished, total)
        finally:
            remove_partial(target)  # the workers have stopped, also after Ctrl-C: nobody writes any more
        report.done = len(todo) - sum(_name(job.source, source) in report.failed for job in todo)
        finished_jobs = [job for job in jobs if _name(job.source, source) not in report.failed]
        report.source_bytes = sum(job.source.stat().st_size for job in finished_jobs)
        report.target_bytes = sum(job.target.stat().st_size for job in finished_jobs)
        report.seconds = round(time.monotonic() - started, 1)
        write_atomic(target / REPORT, json.dumps(asdict(report), indent=2) + "\n")
    return report


def _plan(source: Path, target: Path, fps: float, short_side: int, report: PrepareReport) -> list[EncodeJob]:
    """A job for every video; two videos that would become the same file are one job and one failure."""
    jobs: dict[Path, EncodeJob] = {}
    for path in find_videos(source, skip=target):
        relative = path.relative_to(source)
        copy = target / relative.with_name(f"{without_extension(relative.name)}.mp4")
        if copy in jobs:
            reason = f"{jobs[copy].source.name} would also become {copy.name}; rename one of them"
            report.failed[_name(path, source)] = reason
        else:
            jobs[copy] = EncodeJob(path, copy, fps, short_side)
    if not jobs:
        raise DataError(f"no videos found under {source}.")
    return list(jobs.values())


def _is_done(job: EncodeJob) -> bool:
    """Whether there is a copy, which is then complete. One that is older than its source is made again."""
    try:
        return job.target.stat().st_mtime_ns >= job.source.stat().st_mtime_ns
    except FileNotFoundError:
        return False


@contextmanager
def _locked(target: Path, settings: dict[str, float]) -> Iterator[None]:
    """Hold the target folder for one run at a time, with one fps and size. The lock ends with the process."""
    with (target / SETTINGS).open("a+", encoding="utf-8") as file:
        if not lock_file(file):
            raise DataError(f"another `data prepare` is writing to {target}; wait for it, or choose another folder.")
        file.seek(0)
        content = file.read()
        try:
            earlier = json.loads(content) if content else settings
        except json.JSONDecodeError:
            earlier = None
        if earlier != settings:
            other = f"{target} was made with other settings, {content.strip()}"
            raise DataError(f"{other}. Choose another folder, or remove this one.")
        if not content:
            file.write(json.dumps(settings) + "\n")
            file.flush()
        yield


def _name(path: Path, source: Path) -> str:
    return path.relative_to(source).as_posix()
