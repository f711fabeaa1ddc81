"""``centerclip doctor``: what is in a video file, an index or a folder of benchmarks, and whether it can be used."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer


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

    from rich.console import Console
    from rich.progress import track

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
    progress = track(found, "Checking", console=Console(stderr=True), transient=True, disable=as_json)
    reports = [examine(path, frames, timeout) for path in progress]
    if as_json:
        typer.echo(json.dumps(reports, indent=2))
    else:
        print_table(reports)
    if any(not report["ok"] for report in reports):
        raise typer.Exit(1)


def examine_index(folder: Path | None, as_json: bool) -> None:
    """Print what :func:`~centerclip.search.check.check_index` found."""
    from ..search import default_folder
    from ..search.check import check_index

    print_findings(check_index(folder.expanduser() if folder is not None else default_folder()), as_json)


def examine_benchmarks(root: Path, as_json: bool) -> None:
    """Print what :func:`~centerclip.reports.readiness.check_benchmarks` found."""
    from ..reports.readiness import check_benchmarks

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
    """The files, with the videos below it, sorted, in place of each folder; links to folders are not followed."""
    from ..files import VIDEO_SUFFIXES

    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.suffix.lower() in VIDEO_SUFFIXES and file.is_file())
            found.extend(sorted(inside))
        else:
            found.append(path)
    return found


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
