"""``centerclip bench``: what clustering, engines and precisions save here, with random weights of the real sizes."""

import importlib.util
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from ..errors import MissingExtra

if TYPE_CHECKING:
    import torch
    from rich.table import Table


app = typer.Typer(help="Measure what clustering saves on this machine. Nothing is downloaded.", no_args_is_help=True)
JsonLines = Annotated[bool, Option("--json", help="Print JSON lines for programs.")]
Quick = Annotated[bool, Option("--quick", help="12 frames only.")]
Towers = Annotated[str, Option(help="Vision tower: ViT-B/32, ViT-B/16 or all.")]
Settings = Annotated[
    list[str] | None,
    Option(
        "--setting",
        metavar="SETTING",
        help="Only this clustering, with 12 frames; repeat for more.",
        show_default="the paper's",
    ),
]
Device = Annotated[str, Option(help="cpu, cuda, or auto: a GPU if there is one.")]


@app.command(epilog="Example: centerclip bench encoder --quick")
def encoder(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    engine: Annotated[
        Literal["all", "torch", "onnxruntime"], Option(help="What runs the model; torch where it is installed.")
    ] = "all",
    rounds: Annotated[int, Option(min=1, help="Rounds; every setting runs once in each.")] = 5,
    device: Device = "auto",
    as_json: JsonLines = False,
) -> None:
    """Time to encode a video at the paper's settings, on each engine and in each precision, in the same run."""
    from rich.console import Console
    from rich.markup import escape

    from ..evaluation.speed import encoder_costs
    from ..parallel import usable_cores

    has_torch = engine != "onnxruntime" and importlib.util.find_spec("torch") is not None
    if engine == "torch" and not has_torch:
        raise MissingExtra("this needs torch, which is not installed. Type: pip install 'centerclip[torch]'")
    target = str(_device(device)) if has_torch else "cpu"
    numbers = ("engine", "precision", "time", "ratio", "cosine", "share", "G MACs")
    table = _table(f"Encoding one video, random weights, {target}, {usable_cores()} cores", *numbers)
    console = Console()
    engines = ("torch", "onnxruntime") if engine == "all" else (engine,)
    with Console(stderr=True).status("") as status:
        for name, frames, settings in _chosen(quick, tower, setting):
            status.update(f"{name}, {frames} frames: {', '.join(settings)}")
            for cost in encoder_costs(name, frames, settings, engines=engines, rounds=rounds, device=target):
                if as_json:
                    typer.echo(json.dumps({**asdict(cost), "device": target, "cores": usable_cores()}))
                table.add_row(
                    cost.tower,
                    str(cost.frames),
                    escape(cost.clustering),
                    cost.engine,
                    cost.precision,
                    f"{cost.milliseconds:.0f} ms",
                    f"{cost.ratio:.2f}x",
                    f"{cost.cosine:.4f}",
                    f"{cost.share:.1%}",
                    f"{cost.giga_multiply_adds:.1f}",
                )
            table.add_section()
    if not as_json:
        console.print(table)
        console.print(
            f"ratio: how many times as fast as {'torch' if has_torch else 'onnxruntime'} in float32 without "
            "clustering, in the same run. cosine: to\nfloat32 with the same clustering. share: of the time, in "
            "clustering. G MACs: billions of multiply-adds."
        )


@app.command(epilog="Example: centerclip bench memory --quick")
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
    from ..evaluation.speed import PAPER, PATCH_SIZES

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
