"""``centerclip data``: check, fetch, shrink or generate benchmarks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from .common import Annotations, AsJson, check_names, make_table, print_json, progress, size

if TYPE_CHECKING:
    from ..data.benchmark import SplitCheck, Verification
    from ..data.minivtt import Report
    from ..data.prepare import PrepareReport

MAX_LISTED = 20  # names on the screen; --json has all of them
app = typer.Typer(
    name="data",
    help="Check, fetch, shrink or generate benchmarks.",
    no_args_is_help=True,
)
make_app = typer.Typer(name="make", help="Generate a benchmark.", no_args_is_help=True)
app.add_typer(make_app, name="make")
Workers = Annotated[int | None, Option(min=1, help="Worker processes.", show_default="the number of cores")]


@app.command(epilog="Example: centerclip data verify msrvtt --root DATA")
def verify(
    name: Annotated[
        str, Argument(help="msrvtt, msrvtt-7k, msvd, lsmdc, activitynet, didemo, folder, or a name of your own.")
    ],
    root: Annotated[Path, Option(help="Folder of the videos, with its sub-folders.")],
    annotations: Annotations = None,
    split: Annotated[str | None, Option(help="train, val, test, or several joined by '+'.", show_default="all")] = None,
    allow_missing: Annotated[
        bool, Option("--allow-missing", help="Accept missing videos, and counts that differ from the published ones.")
    ] = False,
    quick: Annotated[bool, Option("--quick", help="Do not open the videos.")] = False,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Check a copy of a benchmark.

    Compares its counts with the published ones, and opens every video.
    """
    from ..data.benchmark import verify as check

    check_names(name, split or "all", None)
    with progress("opening videos", quiet=as_json or quick) as on_progress:
        result = check(
            name, root, annotations=annotations, split=split, quick=quick, workers=workers, on_progress=on_progress
        )
    problems = _problems(result, allow_missing)
    if as_json:
        print_json(_as_dict(result, ok=not problems))
    else:
        _print_verification(result)
    if problems:
        typer.echo(f"centerclip: {'; '.join(problems)}.", err=True)
        raise typer.Exit(1)


@app.command("get", epilog="Example: centerclip data get msrvtt ~/data/msrvtt")
def get_hosted(
    name: Annotated[str, Argument(help="msrvtt, msvd, activitynet, didemo or vatex.")],
    folder: Annotated[
        Path | None,
        Argument(help="Where to write the videos and captions.csv; without it, only size and licence are shown."),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Do not ask, even if no open licence is stated.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a test set that mteb hosts.

    It comes from the Hugging Face hub; its size and licence are shown first.
    """
    from ..data.get import get, look_up

    offer = look_up(name)
    about = {"name": name, "repository": offer.hosted.repository, "bytes": offer.bytes, "licence": offer.licence,
             "note": offer.hosted.note, "home": offer.hosted.home}  # fmt: skip
    if not as_json:
        typer.echo(f"{offer.hosted.repository} on the Hugging Face hub: {offer.hosted.note}; {size(offer.bytes)}.")
        licence = f"Licence: {offer.licence}." if offer.licence else "No licence is stated."
        unclear = "" if offer.is_open else f" Whether you may use it is for you to check: {offer.hosted.home}"
        typer.echo(licence + unclear)
    if folder is None:
        if as_json:
            print_json(about)
        return
    if not yes and (as_json or not typer.confirm("Fetch it?")):
        typer.echo("centerclip: nothing was fetched; --yes fetches without asking", err=True)
        raise typer.Exit(1)
    with progress("files", quiet=as_json) as bar:
        videos = get(offer, folder.expanduser(), on_progress=bar)
    if as_json:
        print_json({**about, "folder": str(folder), "videos": videos})
    else:
        typer.echo(f"{videos:,} videos in {folder}: centerclip evaluate MODEL folder --root {folder}")


@app.command(epilog="Example: centerclip data prepare ~/MSRVTT ~/msrvtt-small")
def prepare(
    source: Annotated[Path, Argument(help="Folder of the videos.")],
    target: Annotated[Path, Argument(help="Folder for the small copies. A run that was stopped resumes.")],
    fps: Annotated[float, Option(min=0.01, help="Frames per second.")] = 3.0,
    short_side: Annotated[int, Option(min=2, help="Pixels of the short side; smaller videos keep their size.")] = 224,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Make small copies of videos for training.

    They are read many times faster.
    """
    from ..data.prepare import REPORT
    from ..data.prepare import prepare as run

    with progress("encoding", quiet=as_json) as on_progress:
        report = run(source, target, fps=fps, short_side=short_side, workers=workers, on_progress=on_progress)
    if as_json:
        print_json(asdict(report))
    else:
        typer.echo(_summary(report))
        if report.failed:
            typer.echo("Failed:\n" + _listing([f"{video}: {reason}" for video, reason in report.failed.items()]))
    if report.failed:
        typer.echo(f"centerclip: {len(report.failed):,} videos failed; all are in {target / REPORT}.", err=True)
        raise typer.Exit(1)


Things = Annotated[
    Literal["emoji", "shapes"] | None,
    Option(help="What to draw.", show_default="emoji, or shapes without an emoji font"),
]
Font = Annotated[
    Path | None, Option(help="Emoji font.", show_default="the system's Noto Color Emoji", envvar="CENTERCLIP_FONT")
]
Force = Annotated[bool, Option("--force", help="Delete what an earlier run made in the folder, and start over.")]


def _generator(what: str, usual: int) -> Callable[..., None]:
    """The command that generates clips, images or pairs of clips; all have the same options."""

    def generate(
        folder: Annotated[Path, Argument(help="New folder. A run that was stopped resumes.")],
        clips: Annotated[int, Option(min=20, help=f"{what.capitalize()} of all splits.")] = usual,
        seed: Annotated[int, Option(min=0, help="Random seed: another one gives other scenes of the same kind.")] = 0,
        workers: Workers = None,
        things: Things = None,
        font: Font = None,
        force: Force = False,
        as_json: AsJson = False,
    ) -> None:
        from ..data.minivtt import make

        with progress(f"drawing {what}", quiet=as_json) as show:
            report = make(
                folder, clips=clips, images=what == "images", pairs=what == "pairs", seed=seed, workers=workers,
                things=things, font=font, force=force, on_progress=show,
            )  # fmt: skip
        _print_report(report, what, as_json)

    return generate


ABOUT_CLIPS = "Generate MiniVTT. Clips of things that move about, with captions and times of events."
ABOUT_IMAGES = (
    "Generate training images of MiniVTT. Videos of one frame, from which a model first learns the names of things."
)
ABOUT_PAIRS = "Generate a harder test split. Pairs of MiniVTT clips that differ only in order and motion."
for name, about, what, usual in (
    ("minivtt", ABOUT_CLIPS, "clips", 2000),
    ("minivtt-images", ABOUT_IMAGES, "images", 30_000),
    ("minivtt-order", ABOUT_PAIRS, "pairs", 300),
):
    make_app.command(name, help=about, epilog=f"Example: centerclip data make {name} ~/data/{name}")(
        _generator(what, usual)
    )


def _problems(result: "Verification", allow_missing: bool) -> list[str]:
    """A sentence for each problem of a copy."""
    problems = []
    if result.missing and not allow_missing:
        problems.append(f"missing videos: {len(result.missing):,} (--allow-missing accepts a smaller gallery)")
    if result.differences and not allow_missing:
        problems.append("; ".join(result.differences) + " (--allow-missing accepts this)")
    if result.unreadable:
        problems.append(f"unreadable videos: {len(result.unreadable):,}; replace or remove them")
    return problems


def _as_dict(result: "Verification", *, ok: bool) -> dict[str, object]:
    splits = [asdict(check) | {"differences": check.differences} for check in result.splits]
    return {"ok": ok} | asdict(result) | {"splits": splits, "missing": result.missing}


def _print_verification(result: "Verification") -> None:
    from rich.console import Console

    columns = ("split", "videos", "captions", "files", "fingerprint")
    table = make_table(f"{result.name} (published counts in brackets)", *columns, left=("split", "fingerprint"))
    for check in result.splits:
        table.add_row(*_row(check))
    for split in result.absent:
        table.add_row(split, "-", "-", "-", "", style="dim")
    Console(soft_wrap=True).print(table)
    if result.note:
        typer.echo(f"Note: {result.note}.")
    for difference in result.differences:
        typer.echo(f"Differs: {difference}.")
    for split, reason in result.absent.items():
        typer.echo(f"Not checked: {split}: {reason}")
    if result.missing:
        typer.echo(f"Missing, {len(result.missing):,} videos:\n{_listing(result.missing)}")
    if result.uncaptioned:
        typer.echo(f"Left out, {len(result.uncaptioned):,} without a caption:\n{_listing(result.uncaptioned)}")
    if result.unreadable:
        named = [f"{video}: {reason}" for video, reason in result.unreadable.items()]
        typer.echo(f"Unreadable, {len(named):,} of {result.opened:,} videos opened:\n{_listing(named)}")
    elif result.opened:
        typer.echo(f"All {result.opened:,} videos found can be opened.")


def _row(check: "SplitCheck") -> tuple[str, ...]:
    expected = (check.published.videos, check.published.captions) if check.published else (None, None)
    videos, captions = (
        f"{count:,}" if published is None else f"{count:,} ({published:,})"
        for count, published in zip((check.videos, check.captions), expected, strict=True)
    )
    return check.split, videos, captions, f"{check.found:,}", check.fingerprint if check.found else ""


def _summary(report: "PrepareReport") -> str:
    line = f"{report.done:,} encoded, {report.skipped:,} already there, {len(report.failed):,} failed."
    if not report.source_bytes:
        return line
    saved, became = report.source_bytes - report.target_bytes, size(report.target_bytes)
    share = saved / report.source_bytes
    return f"{line} {size(report.source_bytes)} became {became}: {size(saved)} saved ({share:.0%})."


def _listing(names: Sequence[str]) -> str:
    rest = [f"... and {len(names) - MAX_LISTED:,} more (all of them with --json)"] if len(names) > MAX_LISTED else []
    return "\n".join(f"  {name}" for name in [*names[:MAX_LISTED], *rest])


def _print_report(report: "Report", what: str, as_json: bool) -> None:
    if as_json:
        print_json(asdict(report))
    else:
        if report.note:
            typer.echo(report.note)
        counts = ", ".join(f"{split} {count:,}" for split, count in report.clips.items())
        typer.echo(
            f"{report.made:,} {what} of {report.things} made in {report.seconds:,.0f} s, {report.skipped:,} already "
            f"there ({counts}); {report.bytes / 1e6:,.1f} MB in {report.folder}."
        )
        for name, reason in report.failed.items():
            typer.echo(f"Failed: {name}: {reason}")
    if report.failed:
        typer.echo(f"centerclip: {len(report.failed):,} jobs failed; run the same command again to retry.", err=True)
        raise typer.Exit(1)
