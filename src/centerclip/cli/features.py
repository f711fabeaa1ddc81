"""``centerclip features``: vectors of videos and sentences, in files that any tool reads."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from . import common
from .common import check_names, open_model, progress


def features(
    model: Annotated[str, Argument(help="Hub name, model folder or file, or the folder of a training run.")],
    sources: Annotated[
        list[str],
        Argument(metavar="BENCHMARK | VIDEO...", help="A benchmark, with --root; or video files and folders."),
    ],
    output: Annotated[Path, Option("--output", "-o", help="Folder for the files.")],
    root: common.Root = None,
    annotations: common.Annotations = None,
    split: Annotated[str, Option(help="Split of a benchmark, or several joined by '+'.")] = "test",
    form: Annotated[
        Literal["safetensors", "npz"], Option("--format", help="File format of the vectors.")
    ] = "safetensors",
    clustering: common.Clustering = None,
    frames: common.Frames = None,
    rule: common.Rule = None,
    batch_size: common.BatchSize = None,
    device: common.Device = None,
    workers: common.Workers = None,
    allow_missing: common.AllowMissing = False,
    allow_unreadable: common.AllowUnreadable = False,
    as_json: common.AsJson = False,
) -> None:
    """Export segment, video and sentence vectors, with CSV files that say what their rows are.

    Videos that cannot be decoded are left out and listed; the exit code is then 1 unless --allow-unreadable is given.
    """
    if root is not None and len(sources) != 1:
        raise typer.BadParameter("--root takes the name of one benchmark; leave it out to give files and folders.")
    split = check_names(sources[0] if root else "folder", split, clustering)
    from ..data import Benchmark, Clip, DataError, load
    from ..evaluation import encode_benchmark
    from ..evaluation.features import save_features, spans_of
    from ..files import find_videos

    opened = open_model(model, clustering, frames, device)
    if root is not None:
        data = load(
            sources[0], root, split, annotations=annotations, allow_missing=allow_missing, protocol=opened.protocol
        )
    else:  # paths are the ids, and captions are not encoded
        paths = list(find_videos(*(Path(source).expanduser() for source in sources)))
        if not paths:
            raise DataError(f"there are no videos in {', '.join(sources)}.")
        data = Benchmark("files", "all", tuple(Clip(str(path), path, (path.stem,)) for path in paths))
    with progress(quiet=as_json) as bar:
        encoded = encode_benchmark(
            opened, data, captions=root is not None, batch_size=batch_size, workers=workers, allow_unreadable=True,
            on_progress=bar.kind,
        )  # fmt: skip
        spans = spans_of(opened, encoded, bar.kind)
    about = {
        "model": model,
        "clustering": str(opened.clustering),
        "frames": str(opened.frames),
        "rule": rule or opened.rule,
        "protocol": opened.protocol,
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
        lines = [f"centerclip: {len(encoded.unreadable):,} videos cannot be read and are left out:"]
        lines += [f"  {video}: {reason}" for video, reason in encoded.unreadable.items()]
        typer.echo("\n".join(lines), err=True)
        raise typer.Exit(1)
