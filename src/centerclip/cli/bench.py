"""``centerclip bench``: what clustering saves on this machine, with random weights of the real sizes."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

app = typer.Typer(help="Measure on this machine what clustering saves. Nothing is downloaded.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON lines for programs.")]
Quick = Annotated[bool, typer.Option("--quick", help="12 frames only.")]
Towers = Annotated[str, typer.Option(help="Which towers: ViT-B/32, ViT-B/16 or all.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="SETTING",
        help="Only this one, with 12 frames; again for more.",
        show_default="the paper's",
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda; a GPU if there is one.")]


@app.command()
def encoder(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; every setting runs once in each.")] = 5,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time to encode a video, at the settings of the paper, against no clustering in the same run."""
    import torch
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..evaluation.costs import encoder_costs

    place = _device(device)
    console = Console()
    table = Table(title=f"Encoding one video, random weights, {_machine(place)}", title_justify="left")
    for column in ("tower", "frames", "clustering"):
        table.add_column(column, no_wrap=True)
    for column in ("time", "faster", "limit", "share", "G MACs"):
        table.add_column(column, justify="right", no_wrap=True)
    groups = _chosen(quick, tower, setting)
    with console.status("") as status:
        for name, frames, settings in groups:
            status.update(f"{name}, {frames} frames: {', '.join(settings)}")
            for cost in encoder_costs(name, frames, settings, rounds=rounds, device=place):
                if as_json:
                    typer.echo(json.dumps({**asdict(cost), "device": str(place), "threads": torch.get_num_threads()}))
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
            "faster: than no clustering, in the same run. limit: the same with the ids given for free, what the\n"
            "remaining arithmetic allows. share: of the time, in clustering. G MACs: billions of multiply-adds."
        )


@app.command()
def memory(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Activations that training keeps for the backward pass, with and without clustering."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..evaluation.costs import memory_costs

    console = Console()
    table = Table(title="Saved for the backward pass of one video, float32, random weights", title_justify="left")
    for column in ("tower", "frames", "clustering"):
        table.add_column(column, no_wrap=True)
    for column in ("saved", "of none", "less"):
        table.add_column(column, justify="right")
    for name, frames, settings in _chosen(quick, tower, setting):
        with console.status(f"{name}, {frames} frames"):
            for cost in memory_costs(name, frames, settings, device=_device(device)):
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


def _chosen(quick: bool, tower: str, settings: list[str] | None) -> list[tuple[str, int, tuple[str, ...]]]:
    from ..cluster import Setting
    from ..evaluation.costs import PAPER, SIZES

    if tower != "all" and tower not in SIZES:
        raise typer.BadParameter(f"no tower {tower!r}; there are {', '.join(SIZES)} and all", param_hint="--tower")
    if settings:
        wanted = tuple(str(Setting.parse(each)) for each in settings)
        return [(name, 12, wanted) for name in SIZES if tower in ("all", name)]
    return [group for group in PAPER if tower in ("all", group[0]) and not (quick and group[1] != 12)]


def _device(name: str):  # type: ignore[no-untyped-def]
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("this machine has no CUDA GPU that torch can use", param_hint="--device")
    return torch.device(name)


def _machine(device) -> str:  # type: ignore[no-untyped-def]
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
