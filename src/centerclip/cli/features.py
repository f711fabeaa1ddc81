"""``centerclip features``: vectors of videos and sentences, in files that any tool reads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .evaluate import (
    AllowMissing,
    AllowUnreadable,
    Annotations,
    AsJson,
    BatchSize,
    Clustering,
    Frames,
    Root,
    Rule,
    Workers,
    bars,
    check_names,
    open_model,
)

if TYPE_CHECKING:
    from ..data import Benchmark


def features(
    model: Annotated[str, typer.Argument(help="Hub name, model folder or file, or the folder of a training run.")],
    sources: Annotated[
        list[str], typer.Argument(metavar="BENCHMARK | VIDEO...", help="A benchmark with --root, or files and folders.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")],
    root: Root = None,
    annotations: Annotations = None,
    split: Annotated[str, typer.Option(help="Split of a benchmark, or some of them joined by '+'.")] = "test",
    form: Annotated[Literal["safetensors", "npz"], typer.Option("--format", help="Of the vectors.")] = "safetensors",
    clustering: Clustering = None,
    frames: Frames = None,
    rule: Rule = None,
    batch_size: BatchSize = None,
    workers: Workers = None,
    allow_missing: AllowMissing = False,
    allow_unreadable: AllowUnreadable = False,
    as_json: AsJson = False,
) -> None:
    """Export segment, video and sentence vectors, with CSV files that say what their rows are.

    Videos that cannot be decoded are left out and named; the exit code is then 1 unless --allow-unreadable is given.
    """
    if root is not None and len(sources) != 1:
        raise typer.BadParameter("--root goes with the name of one benchmark; leave it out to name files and folders.")
    split = check_names(sources[0] if root else "folder", split, clustering)
    from ..evaluation import encode_benchmark
    from ..evaluation.features import save_features, spans_of

    data = _benchmark(sources, root, annotations, split, allow_missing)
    opened = open_model(model, clustering, frames)
    with bars(quiet=as_json) as on_progress:
        encoded = encode_benchmark(
            opened,
            data,
            captions=root is not None,
            batch_size=batch_size,
            workers=workers,
            allow_unreadable=True,
            on_progress=on_progress,
        )
        spans = spans_of(opened, encoded, on_progress)
    about = {
        "model": model,
        "clustering": str(opened.clustering),
        "frames": str(opened.frames),
        "rule": rule or opened.rule,
        "data": f"{data.name} {data.split} {encoded.benchmark.fingerprint}" if root else "files",
    }
    written = save_features(encoded, spans, output, rule=rule or opened.rule, about=about, form=form)
    counts = {
        "videos": len(encoded.segments),
        "segments": sum(map(len, spans)),
        "texts": len(encoded.texts),
        "width": opened.width,
    }
    if as_json:
        files = [str(path) for path in written]
        content = about | counts | {"frames": opened.frames, "files": files}
        content |= {"missing": data.missing, "unreadable": encoded.unreadable}
        typer.echo(json.dumps(content, indent=2))
    else:
        typer.echo(
            f"{counts['videos']:,} videos, {counts['segments']:,} segments, {counts['texts']:,} texts of width "
            f"{opened.width} in {output}: {', '.join(path.name for path in written)}"
        )
    if encoded.unreadable and not allow_unreadable:
        listed = "\n".join(f"  {video}: {reason}" for video, reason in encoded.unreadable.items())
        typer.echo(
            f"centerclip: {len(encoded.unreadable):,} videos cannot be read and are left out:\n{listed}", err=True
        )
        raise typer.Exit(1)


def _benchmark(
    sources: list[str], root: Path | None, annotations: Path | None, split: str, allow_missing: bool
) -> "Benchmark":
    """The benchmark that was named, or one of single files: named by their paths, without captions worth encoding."""
    from ..data import Benchmark, Clip, DataError, load
    from ..data.benchmark import walk_videos

    if root is not None:
        return load(sources[0], root, split, annotations=annotations, allow_missing=allow_missing)
    given = [Path(source).expanduser() for source in sources]
    found = (file for path in given for file in (walk_videos(path) if path.is_dir() else [path]))
    paths = list(dict.fromkeys(found))
    if not paths:
        raise DataError(f"there are no videos in {', '.join(sources)}.")
    return Benchmark("files", "all", tuple(Clip(str(path), path, (path.stem,)) for path in paths))
