"""``centerclip bench``: what clustering saves on this machine, with random weights of the real sizes."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch
    from rich.table import Table


app = typer.Typer(help="Measure what clustering saves on this machine. Nothing is downloaded.", no_args_is_help=True)
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines for programs.")]
Quick = Annotated[bool, typer.Option("--quick", help="12 frames only.")]
Towers = Annotated[str, typer.Option(help="Vision tower: ViT-B/32, ViT-B/16 or all.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="SETTING",
        help="Only this clustering, with 12 frames; repeat for more.",
        show_default="the paper's",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]


@app.command()
def encoder(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; every setting runs once in each.")] = 5,
    device: Device = "auto",
    as_json: JsonLines = False,
) -> None:
    """Time to encode a video at the paper's settings, against no clustering in the same run."""
    import torch
    from rich.console import Console
    from rich.markup import escape

    from ..evaluation.costs import encoder_costs

    target = _device(device)
    cpu = f"CPU, {torch.get_num_threads()} threads"
    machine = torch.cuda.get_device_name(target) if target.type == "cuda" else cpu
    table = _table(f"Encoding one video, random weights, {machine}", "time", "faster", "limit", "share", "G MACs")
    console = Console()
    with Console(stderr=True).status("") as status:
        for name, frames, settings in _chosen(quick, tower, setting):
            status.update(f"{name}, {frames} frames: {', '.join(settings)}")
            for cost in encoder_costs(name, frames, settings, rounds=rounds, device=target):
                if as_json:
                    typer.echo(json.dumps({**asdict(cost), "device": str(target), "threads": torch.get_num_threads()}))
                table.add_row(
                    cost.tower,
                    str(cost.frames),
                    escape(cost.clustering),
                    f"{1000 * cost.seconds:.0f} ms",
                    f"{cost.speedup:.2f}x",
                    f"{cost.limit:.2f}x",
                    f"{cost.share:.1%}",
                    f"{cost.giga_multiply_adds:.1f}",
                )
            table.add_section()
    if not as_json:
        console.print(table)
        console.print(
            "faster: than no clustering, in the same run. limit: the same if choosing tokens took no time, what the\n"
            "remaining arithmetic allows. share: of the time, in clustering. G MACs: billions of multiply-adds."
        )


@app.command()
def memory(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    device: Device = "auto",
    as_json: JsonLines = False,
) -> None:
    """Activations that training keeps for the backward pass, with and without clustering."""
    from rich.console import Console
    from rich.markup import escape

    from ..evaluation.costs import memory_costs

    target = _device(device)
    title = "Saved for the backward pass of one video, float32, random weights"
    table = _table(title, "saved", "of none", "less")
    console = Console()
    with Console(stderr=True).status("") as status:
        for name, frames, settings in _chosen(quick, tower, setting):
            status.update(f"{name}, {frames} frames")
            for cost in memory_costs(name, frames, settings, device=target):
                if as_json:
                    typer.echo(json.dumps(asdict(cost)))
                table.add_row(
                    cost.tower, str(cost.frames), escape(cost.clustering), f"{cost.megabytes:.0f} MB",
                    f"{cost.ratio:.2f}", f"{1 - cost.ratio:.0%}",
                )  # fmt: skip
            table.add_section()
    if not as_json:
        console.print(table)
        console.print("The paper reports 32 to 35 % less GPU memory in training at such settings (weights included).")


def _table(title: str, *numbers: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in ("tower", "frames", "clustering"):
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _chosen(quick: bool, tower: str, settings: list[str] | None) -> list[tuple[str, int, tuple[str, ...]]]:
    """Tower, frames and clustering of what is measured."""
    from ..cluster import Setting
    from ..evaluation.costs import PAPER, PATCH_SIZES

    if tower != "all" and tower not in PATCH_SIZES:
        raise typer.BadParameter(f"no tower {tower!r}; choose {', '.join(PATCH_SIZES)} or all", param_hint="--tower")
    if settings:
        parsed = tuple(str(Setting.parse(each)) for each in settings)
        return [(name, 12, parsed) for name in PATCH_SIZES if tower in ("all", name)]
    return [group for group in PAPER if tower in ("all", group[0]) and not (quick and group[1] != 12)]


def _device(name: str) -> "torch.device":
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("this machine has no CUDA GPU that torch can use", param_hint="--device")
    return torch.device(name)
