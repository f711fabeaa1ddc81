"""Looks an index over: can it be read, do its vectors make sense, are its model and its files still there."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..data import DataError
from ..data.verify import verify
from ..errors import CenterClipError, first_few
from ..reports.catalogue import reports
from ..reports.plan import make_plans
from ..reports.runs import data_folder
from ..search.folder import IndexSettings, is_busy, read_settings
from ..search.lance import LanceStore
from ..search.query import Encoder
from ..search.store import View
from .common import progress

ROUNDING = 0.01  # how far from 1 the norm of a stored vector may be


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: fine or not, and in words."""

    ok: bool
    what: str
    detail: str


def check_index(folder: Path) -> list[Finding]:
    """Look at everything that a search needs. The first thing that cannot be read ends the list."""
    try:
        settings = read_settings(folder)
        findings = [Finding(True, "settings", settings.describe())]
        view = LanceStore(folder, settings.width).view()
    except CenterClipError as error:
        return [Finding(False, "index", str(error))]
    findings.append(Finding(True, "database", f"{len(view.videos):,} videos, {view.count():,} segments"))
    findings += [_vectors(view), _files(view), _failures(view), _model(settings)]
    if is_busy(folder):
        findings.append(Finding(True, "writer", "a process is writing to the index now"))
    return findings


def _vectors(view: View) -> Finding:
    sample = view.sample(10_000)
    norms = np.linalg.norm(sample, axis=1)
    bad = int((~np.isfinite(norms) | (np.abs(norms - 1) > ROUNDING)).sum())
    if bad:
        return Finding(False, "vectors", f"{bad:,} of {len(sample):,} are no vectors of norm 1; use --reindex")
    return Finding(True, "vectors", f"{len(sample):,} looked at, all of norm 1")


def _files(view: View) -> Finding:
    gone = [path for path, file in view.files.items() if file.video and not Path(path).is_file()]
    if gone:
        return Finding(False, "files", f"{len(gone):,} are no longer there, such as {gone[0]!r}; run centerclip index")
    return Finding(True, "files", f"all {sum(bool(file.video) for file in view.files.values()):,} are there")


def _failures(view: View) -> Finding:
    failed = sum(bool(file.failure) for file in view.files.values())
    return Finding(
        True, "failures", f"{failed:,} files could not be read (centerclip status lists them)" if failed else "none"
    )


def _model(settings: IndexSettings) -> Finding:
    try:
        Encoder(settings).model()
    except CenterClipError as error:
        return Finding(False, "model", str(error))
    quick = "sentences are encoded without torch" if settings.files else "sentences need torch: a search starts slower"
    return Finding(True, "model", f"opens, and is the one that the index was made with; {quick}")


RUN_GB = 4.2  # of one run of ViT-B, 150 M weights: two checkpoints of weights and two moments, and the best model
GPU_GB = 14.0  # the least that a table of the paper takes on each of its GPUs


@dataclass(frozen=True)
class Finding2:
    """One thing that was looked at: fine or not, and in words."""

    ok: bool
    what: str
    detail: str


def check_benchmarks(root: Path) -> Iterator[Finding2]:
    """Look at everything that the paper's tables need, one thing after the other. Videos are counted, not opened."""
    if not root.is_dir():
        raise DataError(f"there is no folder {root}; make one with msrvtt, msvd, lsmdc and activitynet in it.")
    plans = [plan for report in reports().values() for plan in make_plans(report, small=False)]
    for name in dict.fromkeys(plan.recipe.data.benchmark for plan in plans):
        yield _benchmark(name, root)
    for start in dict.fromkeys(plan.recipe.model.start for plan in plans):
        yield _weights(start)
    yield _gpus()
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    needed = RUN_GB * len({str(plan.recipe) for plan in plans})
    yield Finding2(free > needed, "disk", f"{free:,.0f} GB free here; all runs together take about {needed:,.0f} GB")


def _benchmark(name: str, root: Path) -> Finding2:
    place = data_folder(root, name)
    try:
        found = verify(name, place, quick=True)
    except CenterClipError as error:
        return Finding2(False, name, f"{error} Looked in {place}.")
    wrong = [f"{split}: {why}" for split, why in found.absent.items()]
    if found.missing:
        wrong.append(f"{len(found.missing):,} videos have no file: {first_few(found.missing)}")
    wrong += found.differences
    if wrong:
        return Finding2(False, name, "; ".join(wrong))
    sizes = ", ".join(f"{check.videos:,} {check.split}" for check in found.splits if "+" not in check.split)
    return Finding2(True, name, f"{sizes}; `centerclip data verify {name} --root {place}` also opens every video")


def _weights(start: str) -> Finding2:
    from huggingface_hub import try_to_load_from_cache

    if Path(start).exists():
        return Finding2(True, "weights", f"{start} is a folder or file")
    names = ("model.safetensors", "pytorch_model.bin")
    if any(isinstance(try_to_load_from_cache(start, name), str) for name in names):
        return Finding2(True, "weights", f"{start} is in the Hugging Face cache")
    return Finding2(False, "weights", f"{start} is not on this machine; fetch it with `hf download {start}`")


def _gpus() -> Finding2:
    import torch

    if not torch.cuda.is_available():
        return Finding2(False, "GPUs", "none; on a laptop run reports with --data minivtt")
    sizes = [torch.cuda.get_device_properties(each).total_memory / 1e9 for each in range(torch.cuda.device_count())]
    found = f"{len(sizes)} with at least {min(sizes):.0f} GB; the tables' settings take {GPU_GB:.0f} to 26 GB on each"
    return Finding2(min(sizes) > GPU_GB, "GPUs", found)


def doctor(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Video files, or folders to search.")
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option("--index", help="Look over the index in this folder.", show_default="the user's, without files"),
    ] = None,
    benchmarks: Annotated[
        Path | None,
        typer.Option("--benchmarks", help="Look over what the paper's tables need: its data sets in this folder."),
    ] = None,
    frames: int = typer.Option(12, min=1, help="Frames to read of each file, as indexing does."),
    timeout: float = typer.Option(60.0, min=0.0, help="Seconds that one file may take."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON list instead of a table."),
) -> None:
    """Check video files, an index, or the data of the paper's tables. Exit code 1 when something cannot be used."""
    import json

    if sum((bool(files), index is not None, benchmarks is not None)) > 1:
        raise typer.BadParameter("either files, --index or --benchmarks, not several")
    if benchmarks is not None:
        examine_benchmarks(benchmarks.expanduser(), as_json)
        return
    if not files:
        examine_index(index, as_json)
        return
    found = list_files(files)
    if not found:
        typer.echo("centerclip: no video files in these folders; name the files to check them anyway", err=True)
        raise typer.Exit(1)
    reports = []
    with progress("checking", quiet=as_json) as bar:
        for path in found:
            reports.append(examine(path, frames, timeout))
            bar(len(reports), len(found))
    if as_json:
        typer.echo(json.dumps(reports, indent=2))
    else:
        print_table(reports)
    if any(not report["ok"] for report in reports):
        raise typer.Exit(1)


def examine_index(folder: Path | None, as_json: bool) -> None:
    """Print what :func:`~centerclip.search.check.check_index` found."""
    from ..search import default_folder

    print_findings(check_index(folder.expanduser() if folder is not None else default_folder()), as_json)


def examine_benchmarks(root: Path, as_json: bool) -> None:
    """Print what :func:`~centerclip.reports.readiness.check_benchmarks` found."""

    print_findings(check_benchmarks(root), as_json, width=11)


def print_findings(findings: Iterable[Any], as_json: bool, *, width: int = 9) -> None:
    """Print findings as they come, or as one JSON list; exit code 1 when one is bad."""
    import json
    from dataclasses import asdict

    seen = []
    for finding in findings:
        seen.append(finding)
        if not as_json:
            typer.echo(f"{'ok ' if finding.ok else 'BAD'}  {finding.what:{width}} {finding.detail}")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in seen], indent=2))
    if not all(finding.ok for finding in seen):
        raise typer.Exit(1)


def list_files(paths: list[Path]) -> list[Path]:
    """The files, with the videos below it in place of each folder."""
    from ..files import find_videos

    return list(find_videos(*paths))


def examine(path: Path, frames: int, timeout: float) -> dict[str, Any]:
    """Facts about one file and a verdict, ready for JSON."""
    from dataclasses import asdict

    from ..video import Limits, VideoError, probe, read_frames

    limits = Limits(seconds=timeout)
    # A name that is not valid text cannot be printed or written as JSON as it is.
    report: dict[str, Any] = {"path": str(path).encode(errors="surrogateescape").decode(errors="replace"), "ok": False}
    try:
        report = {**asdict(probe(path, limits=limits)), **report}
        note = read_frames(path, frames, short_side=32, limits=limits).note
        report.update(ok=True, note=note)
    except VideoError as error:
        report.update(reason=error.reason, detail=error.detail, advice=error.advice)
    return report


def print_table(reports: list[dict[str, Any]]) -> None:
    """Print the reports of :func:`examine` as a table, and a line that sums them up."""
    from os.path import commonpath

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Long paths would squeeze the facts: what all files share goes above the table.
    shared = Path(commonpath([Path(report["path"]).absolute().parent for report in reports]))
    table = Table(title=Text(_printable(str(shared))), title_justify="left")
    table.add_column("file", overflow="fold")
    for column in ("container", "codec", "size", "turn", "length", "fps", "frames"):
        table.add_column(column, justify="right" if column in {"length", "fps", "frames"} else "left")
    table.add_column("verdict", overflow="fold")
    for report in reports:
        # Text, not markup: a file name may hold square brackets, and control codes are made visible.
        name = str(Path(report["path"]).absolute().relative_to(shared))
        table.add_row(Text(_printable(name)), *_facts(report), _verdict(report))
    console = Console()
    console.print(table)
    bad = sum(not report["ok"] for report in reports)
    console.print(f"{len(reports)} checked, {len(reports) - bad} readable, {bad} not.")


def _facts(report: dict[str, Any]) -> list[str]:
    if "codec" not in report:
        return [""] * 7
    return [
        report["container"],
        report["codec"],
        f"{report['width']} x {report['height']}",
        f"{report['rotation']}°" if report["rotation"] else "",
        f"{report['duration']:.2f} s",
        f"{report['fps']:.2f}" + ("" if report["constant_rate"] else " ~"),
        str(report["frames"]),
    ]


def _verdict(report: dict[str, Any]) -> Any:
    from rich.text import Text

    if not report["ok"]:
        return Text(f"{report['reason']}: {_printable(report['detail'])}. {report['advice']}", style="red")
    if report["note"]:
        return Text(f"ok, {_printable(report['note'])}", style="yellow")
    return Text("ok", style="green")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
