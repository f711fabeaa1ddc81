"""``centerclip models`` lists models, ``export`` writes one without torch, ``show`` draws what one keeps of a video."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from .common import AsJson, Device, print_json, printable, size


def show(
    video: Annotated[Path, Argument(help="A video file.")],
    model: Annotated[
        str, Option(help="Hub name, model folder or checkpoint file; demo is the bundled model of MiniVTT.")
    ] = "demo",
    output: Annotated[Path, Option("--output", "-o", help="Image to write; kept patches are bright.")] = Path(
        "centres.png"
    ),
    clustering: Annotated[
        str | None, Option(help="Clustering, in the paper's notation.", show_default="the model's, or an index's")
    ] = None,
    frames: Annotated[
        int | None, Option(min=1, help="Frames to read from the video.", show_default="the model's")
    ] = None,
    start: Annotated[float | None, Option(min=0, help="Start in seconds.")] = None,
    end: Annotated[float | None, Option(min=0, help="End in seconds.")] = None,
    tsne: Annotated[
        Path | None, Option(help="Also draw a t-SNE map of the tokens of one segment into this image.")
    ] = None,
    segment: Annotated[int, Option(min=1, help="Which segment to map.")] = 1,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Draw which patches of a video are kept."""
    from rich.console import Console

    from ..cluster import SettingError
    from ..files import write_atomic
    from ..model import CenterCLIP
    from ..plots.tokens import centre_sheet, kept_patches, token_map
    from ..search.folder import default_clustering

    for path in filter(None, (output, tsne)):
        if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise typer.BadParameter(f"{path} is not the name of an image; it must end in .png, .jpg or .webp")
    opened = CenterCLIP.from_pretrained(model, device=device)
    try:
        if clustering is not None or frames is not None:
            opened.set_clustering(clustering or opened.clustering, frames=frames)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error
    if clustering is None and not opened.clustering.stages:  # a model of the hub: what a new index takes
        opened.set_clustering(default_clustering(blocks=len(opened.attachment.blocks), frames=opened.frames))
    setting, tower = opened.clustering, opened.attachment
    if not setting.stages or setting.method == "pooling":
        segments = next(count for count in (4, 3, 2, 1) if opened.frames % count == 0)
        example = f"B{max(1, len(tower.blocks) // 2)}-{segments},{round(tower.patches**0.5) ** 2}"
        what = "averages patches" if setting.method == "pooling" else "keeps every patch"
        raise typer.BadParameter(f'"{setting}" {what}, so there is nothing to draw. Try {example}.')
    if segment > opened.clustering.stages[0].segments:
        raise typer.BadParameter(f"--segment {segment}: there are only {opened.clustering.stages[0].segments} segments")
    with Console(stderr=True).status("reading and drawing"):
        patches = kept_patches(opened, video, start=start, end=end)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, centre_sheet(patches).save)
        if tsne:
            tsne.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(tsne, partial(token_map(patches.segment(segment - 1)).savefig, dpi=150))
    if as_json:
        kept_places = zip(patches.spans, patches.places, strict=True)
        content = {
            "video": str(video),
            "clustering": str(opened.clustering),
            "picture": str(output),
            "tsne": str(tsne) if tsne else None,
            "segments": [{"start": a, "end": b, "kept": places.tolist()} for (a, b), places in kept_places],
        }
        print_json(content)
        return
    segments, kept = patches.places.shape[:2]
    total = patches.tokens.shape[:2].numel() // segments
    typer.echo(
        f"{opened.clustering} keeps {kept} of the {total} patches of each of {segments} segments, from "
        f"{opened.frames} frames; drawn in {output}."
    )
    if tsne:
        typer.echo(f"The tokens of segment {segment} are drawn in {tsne}.")


def export(
    model: Annotated[str, Argument(help="A Hugging Face hub name, a model's folder, or demo.")],
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Where to write it.")],
    precision: Annotated[
        Literal["auto", "float32", "int8"],
        Option(help="auto: float32, and int8 too where this machine would use it."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Export a model to ONNX.

    `centerclip index --model FOLDER` then needs neither torch nor a conversion.
    """
    from ..model.engine import export_model
    from ..model.precision import told

    exported = export_model(model, output.expanduser(), precision=precision)
    if as_json:
        print_json(exported)
        return
    total = sum(exported["files"].values())
    typer.echo(f"Wrote {printable(exported['folder'])}: {' and '.join(exported['precisions'])}, {size(total)}.")
    for line in told(exported["measured"]):
        typer.echo(f"{line}.")


def models(as_json: AsJson = False) -> None:
    """List models that are known to be good.

    With size, languages, estimated speed on this machine, and what they are good for.
    """
    from ..bundled import SMALL
    from ..model.known import KNOWN_MODELS, frames_per_second

    rows = [
        {
            "name": known.name,
            "short": known.short,
            "megabytes": round(known.megabytes),
            "languages": known.languages,
            "frames_per_second": float(f"{frames_per_second(known):.2g}"),
            "needs": known.engine,
            "good_for": known.good_for,
        }
        for known in KNOWN_MODELS
    ]
    if as_json:
        print_json({"bundled": [SMALL], "models": rows})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("--model", "size", "languages", "frames/s", "good for"):
        table.add_column(heading, justify="right" if heading in ("size", "frames/s") else "left", overflow="fold")
    table.add_row(SMALL, "in the box", "English", "", "no download: works offline, right after the install")
    for row, known in zip(rows, KNOWN_MODELS, strict=True):
        name = f"{known.short} = {known.name}" if known.short else known.name
        note = known.good_for + (" (needs torch)" if known.engine == "torch" else "")
        speed = f"{row['frames_per_second']:g}"
        table.add_row(name, size(int(known.megabytes * 1e6)), known.languages, speed, note)
    Console().print(table)
    typer.echo(
        "A model is fetched once. Speeds are estimates for this machine, from matrix products of the same sizes, in "
        "float32 and without clustering. `centerclip bench encoder` measures."
    )
