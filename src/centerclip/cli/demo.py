"""``centerclip demo``: see the parts that exist at work, without data or network."""

import time
from pathlib import Path
from typing import Annotated

import typer


def demo(
    clustering: Annotated[str, typer.Option(help="Clustering, in the paper's notation; any block will do.")] = "B6-4,7",
    picture: Annotated[Path | None, typer.Option(help="Save the drawing as a picture, for example demo.png.")] = None,
) -> None:
    """Cluster the tokens of a generated video and show which ones are kept."""
    import torch
    from rich.console import Console
    from rich.table import Table

    from ..cluster import Setting, centers
    from .drawing import kept_tokens, kept_tokens_picture

    console = Console()
    setting = Setting.parse(clustering)
    frames, side = 12, 14
    setting.check(blocks=12, frames=frames, patches=side * side)
    if not setting.stages or setting.method == "pooling":
        raise typer.BadParameter("the demo draws kept tokens: give a method with stages, such as B6-4,7")
    stage = setting.stages[0]
    hidden = generated_video(frames, side)
    result = centers(
        hidden, frames=frames, segments=stage.segments, k=stage.k, method=setting.method, options=setting.options
    )
    console.print(
        f"A square and a disc move over a striped background: {frames} frames of {side} x {side} tokens.\n"
        f"[bold]{setting}[/] keeps {stage.k} of the {side * side * frames // stage.segments} tokens of each of "
        f"{stage.segments} segments (bright, coloured by cluster):\n"
    )
    console.print(kept_tokens(result.places, result.assignment, frames=frames, side=side, width=console.width))

    table = Table(title="\nThe same tokens by every method", title_justify="left")
    for column in ("method", "kept on moving things", "mean distance to the nearest kept token", "time"):
        table.add_column(column, justify="right" if column != "method" else "left")
    patches = hidden[:, 1:].reshape(stage.segments, -1, hidden.shape[2])
    for method in ("kmedoids", "spectral", "sampling"):
        start = time.perf_counter()
        kept = centers(hidden, frames=frames, segments=stage.segments, k=stage.k, method=method)
        milliseconds = 1000 * (time.perf_counter() - start)
        nearest = torch.cdist(patches, kept.tokens[:, 1:]).amin(dim=2).mean().item()
        moving = moving_mask(frames, side)[tuple(kept.places.reshape(-1, 3).T)].float().mean().item()
        table.add_row(method, f"{moving:.0%}", f"{nearest:.3f}", f"{milliseconds:.1f} ms")
    console.print(table)
    share = moving_mask(frames, side).float().mean().item()
    console.print(f"Moving things cover {share:.0%} of the picture.")
    console.print("\nNext: [bold]from centerclip.cluster import kmedoids[/] (see README.md), or [bold]make bench[/].")
    if picture:
        kept_tokens_picture(result.places, result.assignment, frames=frames, side=side).save(picture)


def moving_mask(frames: int, side: int):  # type: ignore[no-untyped-def]
    """Where the square and the disc are: bool ``[frames, side, side]``."""
    import torch

    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    steps = torch.arange(frames)[:, None, None]
    square = ((rows - 3).abs() <= 1) & ((columns - 1 - steps * (side - 3) / frames).abs() <= 1)
    disc = (rows - side + 4) ** 2 + (columns - side + 3 + steps * (side - 5) / frames) ** 2 <= 5
    return square | disc


def generated_video(frames: int, side: int, width: int = 64):  # type: ignore[no-untyped-def]
    """Token features ``[frames, 1 + side * side, width]`` of a small generated scene; the same every time."""
    import torch

    generator = torch.Generator().manual_seed(0)
    stripes, square, disc = (torch.randn(3, width, generator=generator) for _ in range(3))
    rows = torch.arange(side)[:, None].expand(side, side)
    background = stripes[rows * 3 // side]  # [side, side, width]
    video = background.expand(frames, side, side, width).clone()
    moving = moving_mask(frames, side)
    upper = (rows < side // 2).expand_as(moving)
    video[moving & upper] = 2 * square[0]
    video[moving & ~upper] = 2 * disc[0]
    video += 0.08 * torch.randn(video.shape, generator=generator)
    tokens = video.flatten(1, 2)
    return torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1)
