"""Makes a small copy of a folder of videos: in parallel, resumable, each file whole or not there."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..errors import DataError
from ..parallel import run_each, usable_cores
from ..video.encode import EncodeJob, encode, one_thread
from .benchmark import walk_videos
from .formats import without_extension

SETTING = "prepare.json"  # in the target folder: how its files were made
REPORT = "prepare-report.json"  # in the target folder: what the last run did


@dataclass
class PrepareReport:
    """What a run did. ``failed`` maps a video's path below the source to the reason; bytes are of finished files."""

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

    A file that is there already and not older than its source is skipped, so a stopped run goes on where it was. A
    video that fails is named in the report and the others go on.

    Args:
        source: a folder.
        target: a folder; made if it is not there. It keeps one setting: another fps or size needs another folder.
        fps: frames a second of the copies.
        short_side: pixels; smaller videos keep their size.
        workers: processes, by default one for each core.
        timeout: seconds that one video may take, by default without end.
        on_progress: called with (finished, total) at the start and after each video.
    """
    source, target = Path(source).expanduser(), Path(target).expanduser()
    if fps <= 0 or short_side < 2 or (workers is not None and workers < 1):
        raise DataError("fps and workers must be positive, and the short side at least 2 pixels.")
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of videos.")
    if source.resolve() == target.resolve():
        raise DataError(f"{target} holds the originals; copies need a folder of their own.")
    began = time.monotonic()
    target.mkdir(parents=True, exist_ok=True)
    report = PrepareReport()
    with _owned(target, {"fps": fps, "short_side": short_side}):
        _remove_partial_files(target)  # of a run that was killed
        jobs = _plan(source, target, fps, short_side, report)
        todo = [job for job in jobs if not _is_done(job)]
        report.skipped = len(jobs) - len(todo)
        total = len(jobs) + len(report.failed)
        finished = total - len(todo)
        on_progress(finished, total)
        try:
            with closing(
                run_each(encode, todo, workers=workers or usable_cores(), timeout=timeout, setup=one_thread)
            ) as outcomes:
                for outcome in outcomes:
                    if outcome.error is not None:
                        report.failed[_name(outcome.job.source, source)] = outcome.error
                    finished += 1
                    on_progress(finished, total)
        finally:
            _remove_partial_files(target)  # the processes have ended, also after Ctrl-C: nobody writes any more
        report.done = len(todo) - sum(_name(job.source, source) in report.failed for job in todo)
        finished_jobs = [job for job in jobs if _name(job.source, source) not in report.failed]
        report.source_bytes = sum(job.source.stat().st_size for job in finished_jobs)
        report.target_bytes = sum(job.target.stat().st_size for job in finished_jobs)
        report.seconds = round(time.monotonic() - began, 1)
        _write_json(target / REPORT, asdict(report))
    return report


def _plan(source: Path, target: Path, fps: float, short_side: int, report: PrepareReport) -> list[EncodeJob]:
    """A job for every video; two videos that would become the same file are one job and one failure."""
    jobs: dict[Path, EncodeJob] = {}
    for path in walk_videos(source, skip=target):
        relative = path.relative_to(source)
        copy = target / relative.with_name(f"{without_extension(relative.name)}.mp4")
        if copy in jobs:
            report.failed[_name(path, source)] = f"{jobs[copy].source.name} becomes {copy.name} too; rename one of them"
        else:
            jobs[copy] = EncodeJob(path, copy, fps, short_side)
    if not jobs:
        raise DataError(f"there are no videos under {source}.")
    return list(jobs.values())


def _is_done(job: EncodeJob) -> bool:
    """Whether the copy is there: if it is, it is whole. One that is older than its source is made again."""
    try:
        return job.target.stat().st_mtime_ns >= job.source.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def _remove_partial_files(target: Path) -> None:
    for partial in target.rglob(".*.mp4.*.part"):
        partial.unlink(missing_ok=True)


@contextmanager
def _owned(target: Path, setting: dict[str, float]) -> Iterator[None]:
    """Hold the target folder for one run at a time, of one setting. The lock goes with the process, however it ends."""
    with (target / SETTING).open("a+", encoding="utf-8") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass  # Windows: two runs at once are then not noticed
        except OSError as error:
            raise DataError(f"another prepare is writing to {target}; wait for it or choose another folder.") from error
        file.seek(0)
        content = file.read()
        try:
            earlier = json.loads(content) if content else setting
        except json.JSONDecodeError:
            earlier = None
        if earlier != setting:
            raise DataError(
                f"{target} was made with another setting, {content.strip()}. Choose another folder, or remove it first."
            )
        if not content:
            file.write(json.dumps(setting) + "\n")
            file.flush()
        yield


def _write_json(path: Path, content: object) -> None:
    """Replace a JSON file in one step."""
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _name(path: Path, source: Path) -> str:
    return path.relative_to(source).as_posix()
