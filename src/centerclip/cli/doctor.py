"""``centerclip doctor``: whether video files, an index, or the data of the paper's tables can be used."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from .common import AsJson, print_json, printable, progress

if TYPE_CHECKING:
    from ..search.folder import IndexSettings
    from ..search.store import View


NORM_TOLERANCE = 0.01  # stored vectors have norm 1 but for the rounding of float16
NORM_SAMPLE = 10_000  # vectors whose norm is checked: enough to notice damage, quick in a large index
RUN_GB = 4.2  # of one run of ViT-B, 150 M weights: two checkpoints of weights and two moments, and the best model
GPU_GB = 14.0  # the least that a table of the paper takes on each of its GPUs


@dataclass(frozen=True)
class Finding:
    """One thing that was checked, whether it can be used, and why (not)."""

    ok: bool
    what: str
    detail: str


def doctor(
    files: Annotated[list[Path] | None, Argument(metavar="FILE", help="Video files and folders.")] = None,
    index: Annotated[
        Path | None,
        Option("--index", help="Check the index in this folder.", show_default="the user's"),
    ] = None,
    benchmarks: Annotated[
        Path | None,
        Option("--benchmarks", help="Check what the paper's tables need, with the data sets in this folder."),
    ] = None,
    frames: int = Option(12, min=1, help="Frames to read from each file."),
    timeout: float = Option(60.0, min=0.0, help="Seconds allowed for one file."),
    as_json: AsJson = False,
) -> None:
    """Check videos, an index, or benchmarks.

    The exit code is 1 when something cannot be used.
    """
    if sum((bool(files), index is not None, benchmarks is not None)) > 1:
        raise typer.BadParameter("give only one of FILE, --index and --benchmarks")
    if files:
        _check_files(files, frames, timeout, as_json)
    elif benchmarks is not None:
        _print_findings(_check_benchmarks(benchmarks.expanduser()), as_json, width=11)
    else:
        from ..search import default_folder

        _print_findings(_check_index(index.expanduser() if index is not None else default_folder()), as_json)


def _print_findings(findings: Iterable[Finding], as_json: bool, *, width: int = 9) -> None:
    """Print findings as they come, or as one JSON list; exit code 1 when one is bad."""
    printed = []
    for finding in findings:
        printed.append(finding)
        if not as_json:
            _print_line(finding.ok, f"{finding.what:{width}} {finding.detail}")
    if as_json:
        print_json([asdict(finding) for finding in printed])
    if not all(finding.ok for finding in printed):
        raise typer.Exit(1)


def _check_files(files: list[Path], frames: int, timeout: float, as_json: bool) -> None:
    from ..files import find_videos

    paths = list(find_videos(*files))
    if not paths:
        typer.echo("centerclip: no video files in these folders; a file that is named is checked in any case", err=True)
        raise typer.Exit(1)
    reports: list[dict[str, Any]] = []
    with progress("checking", quiet=as_json) as bar:
        for path in paths:
            reports.append(_check_file(path, frames, timeout))
            bar(len(reports), len(paths))
    if as_json:
        print_json(reports)
    else:
        _print_reports(reports)
    if any(not report["ok"] for report in reports):
        raise typer.Exit(1)


def _check_file(path: Path, frames: int, timeout: float) -> dict[str, Any]:
    """Facts about one file and a verdict, ready for JSON."""
    from ..files import valid_text
    from ..video import Limits, VideoError, probe, read_frames

    limits = Limits(seconds=timeout)
    # A name that is not valid text cannot be printed or written as JSON as it is.
    report: dict[str, Any] = {"path": valid_text(path), "ok": False}
    try:
        report = {**asdict(probe(path, limits=limits)), **report}
        note = read_frames(path, frames, short_side=32, limits=limits).note
        report.update(ok=True, note=note)
    except VideoError as error:
        report.update(reason=error.reason, detail=error.detail, advice=error.advice)
    return report


def _print_reports(reports: list[dict[str, Any]]) -> None:
    """Print a line for each file, and one that sums them up."""
    # What all files share is printed once.
    shared = Path(commonpath([Path(report["path"]).absolute().parent for report in reports]))
    typer.echo(printable(shared))
    for report in reports:
        name = printable(Path(report["path"]).absolute().relative_to(shared))
        _print_line(report["ok"], f"{name}: {_facts(report)}", "yellow" if report.get("note") else "green")
    bad = sum(not report["ok"] for report in reports)
    typer.echo(f"{len(reports)} checked, {len(reports) - bad} readable, {bad} not.")


def _print_line(ok: bool, text: str, colour: str = "green") -> None:
    """Print a verdict; on a terminal with further lines below the first word."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 5
        text = textwrap.fill(text, width, subsequent_indent=" " * 5, break_long_words=False, break_on_hyphens=False)
    typer.echo(f"{typer.style('ok ' if ok else 'BAD', fg=colour if ok else 'red')}  {text}")


def _facts(report: dict[str, Any]) -> str:
    """What is in a file, or why it cannot be read."""
    if not report["ok"]:
        return f"{report['reason']}: {printable(report['detail'])}. {report['advice']}"
    facts = [
        f"{report['container']} {report['codec']}" + (f" HDR ({report['hdr']})" if report["hdr"] else ""),
        f"{report['width']} x {report['height']}" + (f" turned {report['rotation']}°" if report["rotation"] else ""),
        f"{report['duration']:.2f} s",
        f"{report['fps']:.2f} fps" + ("" if report["constant_rate"] else " (varying)"),
        f"{report['frames']:,} frames",
    ]
    return ", ".join(facts) + (f"; {printable(report['note'])}" if report["note"] else "")


def _check_index(folder: Path) -> Iterator[Finding]:
    """Check everything that a search needs. The first thing that cannot be read ends the list."""
    from ..errors import CenterClipError
    from ..files import path_of
    from ..search.filters import offline_check
    from ..search.folder import is_busy
    from ..search.sqlite import SqliteStore, read_settings

    try:
        settings = read_settings(folder)
        view = SqliteStore(folder, settings.width).view()
    except CenterClipError as error:
        yield Finding(False, "index", str(error))
        return
    yield Finding(True, "settings", settings.describe())
    yield Finding(True, "database", f"{len(view.videos):,} videos, {view.count():,} segments")
    yield _vectors(view)
    is_offline = offline_check()
    offline = [path for path, file in view.files.items() if file.video and is_offline(file)]
    if offline:
        yield Finding(True, "offline", f"{len(offline):,} files, such as {offline[0]!r}: is a disk not connected?")
    known = [path for path, file in view.files.items() if file.video and not is_offline(file)]
    gone = [path for path in known if not path_of(path).is_file()]
    if gone:
        yield Finding(False, "files", f"{len(gone):,} no longer exist, such as {gone[0]!r}; run centerclip index")
    else:
        yield Finding(True, "files", f"all {len(known):,} {'others ' if offline else ''}exist")
    failed = sum(bool(file.failure) for file in view.files.values())
    detail = f"{failed:,} files could not be read (centerclip status lists them)" if failed else "none"
    yield Finding(True, "failures", detail)
    yield _model(settings)
    if is_busy(folder):
        yield Finding(True, "writer", "a process is writing to the index now")


def _vectors(view: "View") -> Finding:
    import numpy as np

    sample = view.sample(NORM_SAMPLE)
    norms = np.linalg.norm(sample, axis=1)
    bad = int((~np.isfinite(norms) | (np.abs(norms - 1) > NORM_TOLERANCE)).sum())
    if bad:
        return Finding(False, "vectors", f"{bad:,} of {len(sample):,} do not have norm 1; use --reindex")
    return Finding(True, "vectors", f"{len(sample):,} checked, all of norm 1")


def _model(settings: "IndexSettings") -> Finding:
    from ..errors import CenterClipError
    from ..model.precision import told
    from ..search.query import Encoder

    try:
        how = Encoder(settings).model().describe()
    except CenterClipError as error:
        return Finding(False, "model", str(error))
    runs = f"runs on {how['engine']} ({how['device']}) in {how['precision']}"
    return Finding(
        True, "model", "; ".join(["opens, and is the one that the index was made with", runs, *told(how["measured"])])
    )


def _check_benchmarks(root: Path) -> Iterator[Finding]:
    """Check everything that the paper's tables need. Videos are counted, not opened."""
    from ..errors import DataError
    from ..reports.catalogue import make_plans, reports

    if not root.is_dir():
        raise DataError(f"there is no folder {root}; create it, with msrvtt, msvd, lsmdc and activitynet inside.")
    plans = [plan for report in reports().values() for plan in make_plans(report, small=False)]
    for name in dict.fromkeys(plan.recipe.data.benchmark for plan in plans):
        yield _benchmark(name, root)
    for start in dict.fromkeys(plan.recipe.model.start for plan in plans):
        yield _weights(start)
    yield _gpus()
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    needed = RUN_GB * len({str(plan.recipe) for plan in plans})
    yield Finding(free > needed, "disk", f"{free:,.0f} GB free here; all runs together take about {needed:,.0f} GB")


def _benchmark(name: str, root: Path) -> Finding:
    from ..data.benchmark import verify
    from ..errors import CenterClipError, first_few
    from ..reports.runs import data_folder

    folder = data_folder(root, name)
    try:
        checked = verify(name, folder, quick=True)
    except CenterClipError as error:
        return Finding(False, name, f"{error} Searched {folder}.")
    wrong = [f"{split}: {why}" for split, why in checked.absent.items()]
    if checked.missing:
        wrong.append(f"{len(checked.missing):,} videos have no file: {first_few(checked.missing)}")
    wrong += checked.differences
    if wrong:
        return Finding(False, name, "; ".join(wrong))
    sizes = ", ".join(f"{check.videos:,} {check.split}" for check in checked.splits if "+" not in check.split)
    return Finding(True, name, f"{sizes}; `centerclip data verify {name} --root {folder}` also opens every video")


def _weights(start: str) -> Finding:
    from huggingface_hub import try_to_load_from_cache

    if Path(start).exists():
        return Finding(True, "weights", f"{start} is a local file or folder")
    names = ("model.safetensors", "pytorch_model.bin")
    if any(isinstance(try_to_load_from_cache(start, name), str) for name in names):
        return Finding(True, "weights", f"{start} is in the Hugging Face cache")
    return Finding(False, "weights", f"{start} is not on this machine; download it with `hf download {start}`")


def _gpus() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding(False, "GPUs", "none; on a laptop run reports with --data minivtt")
    sizes = [torch.cuda.get_device_properties(each).total_memory / 1e9 for each in range(torch.cuda.device_count())]
    detail = f"{len(sizes)} with at least {min(sizes):.0f} GB; the tables' settings take {GPU_GB:.0f} to 26 GB on each"
    return Finding(min(sizes) > GPU_GB, "GPUs", detail)
