"""``centerclip show``: see which patches clustering keeps of a video."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..model import CenterCLIP


def show(
    video: Annotated[Path, typer.Argument(help="A video file.")],
    model: Annotated[
        str, typer.Option(help="Model folder, checkpoint file, hub name, or demo, the bundled model.")
    ] = "demo",
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture of the frames, kept patches bright.")] = Path(
        "centres.png"
    ),
    clustering: Annotated[
        str | None, typer.Option(help="Clustering, in the paper's notation.", show_default="the model's")
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames taken of the video.", show_default="the model's")
    ] = None,
    start: Annotated[float | None, typer.Option(min=0, help="Second at which to begin.")] = None,
    end: Annotated[float | None, typer.Option(min=0, help="Second at which to end.")] = None,
    tsne: Annotated[
        Path | None, typer.Option(help="Also draw the tokens of one segment as a map (t-SNE) into this picture.")
    ] = None,
    segment: Annotated[int, typer.Option(min=1, help="The segment of the map.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw which patches of a video clustering keeps, frame by frame."""
    from rich.console import Console

    from ..cluster import SettingError
    from ..model import CenterCLIP
    from ..plots.patches import look
    from ..plots.tokens import centre_sheet, save_picture

    for path in filter(None, (output, tsne)):
        if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise typer.BadParameter(f"{path} is no picture; end it with .png, .jpg or .webp")
    opened = CenterCLIP.from_pretrained(model)
    try:
        if clustering is not None or frames is not None:
            opened.set_clustering(clustering or opened.clustering, frames=frames)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from error
    _check_keeps_some(opened)
    if segment > opened.attachment.setting.stages[0].segments:
        raise typer.BadParameter(f"--segment {segment}: there are {opened.attachment.setting.stages[0].segments}")
    with Console(stderr=True).status("reading and drawing"):
        seen = look(opened, video, start=start, end=end)
        save_picture(centre_sheet(seen), output)
        if tsne:
            from ..plots.tokens import token_map

            save_picture(token_map(seen, segment - 1), tsne)
    kept, of = seen.places.shape[1], seen.tokens.shape[0] * seen.tokens.shape[1] // len(seen.places)
    if as_json:
        told = {
            "video": str(video),
            "clustering": str(opened.clustering),
            "picture": str(output),
            "tsne": str(tsne) if tsne else None,
            "segments": [
                {"start": first, "end": last, "kept": places.tolist()}
                for (first, last), places in zip(seen.spans, seen.places, strict=True)
            ],
        }
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo(
        f"{opened.clustering} keeps {kept} of the {of} patches of each of {len(seen.spans)} segments, from "
        f"{opened.frames} frames; drawn in {output}."
    )
    if tsne:
        typer.echo(f"The tokens of segment {segment} are drawn in {tsne}.")


def _check_keeps_some(model: "CenterCLIP") -> None:
    """Only settings that choose patches can be drawn."""
    setting, side = model.clustering, round(model.attachment.patches**0.5)
    if setting.stages and setting.method != "pooling":
        return
    segments = next(count for count in (4, 3, 2, 1) if model.frames % count == 0)
    example = f"B{max(1, len(model.attachment.blocks) // 2)}-{segments},{side * side}"
    what = "averages patches" if setting.method == "pooling" else "keeps every patch"
    raise typer.BadParameter(f'"{setting}" {what}: there is no choice to draw. Take another, such as {example}.')
