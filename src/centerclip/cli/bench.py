"""``centerclip bench``: what clustering, engines and precisions save here, with random weights of the real sizes."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from typer import Option

from .common import AsJson, Device, make_table

app = typer.Typer(help="Measure what clustering saves here. Nothing is downloaded.", no_args_is_help=True)
Quick = Annotated[bool, Option("--quick", help="Only 12 frames.")]
Towers = Annotated[Literal["all", "ViT-B/32", "ViT-B/16"], Option(help="Vision tower.")]
Settings = Annotated[
    list[str] | None,
    Option(
        "--setting",
        metavar="SETTING",
        help="Only this clustering, with 12 frames. Repeatable.",
        show_default="the paper's",
    ),
]


@app.command(epilog="Example: centerclip bench encoder --quick")
def encoder(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    engine: Annotated[Literal["all", "torch", "onnxruntime"], Option(help="What runs the model.")] = "all",
    rounds: Annotated[int, Option(min=1, help="Rounds; each setting runs once per round.")] = 5,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Time the encoder with and without clustering.

    At the paper's settings, on each engine and in each precision, all in the same run.
    """
    from ..evaluation.costs import EncoderCost, encoder_costs
    from ..model.centerclip import find_device
    from ..parallel import usable_cores

    engines = ("torch", "onnxruntime") if engine == "all" else (engine,)
    here = {"device": str(find_device(device)) if "torch" in engines else "cpu", "cores": usable_cores()}

    def measure(name: str, frames: int, settings: Iterable[str]) -> Iterable[EncoderCost]:
        return encoder_costs(name, frames, settings, engines=engines, rounds=rounds, device=str(here["device"]))

    columns: dict[str, Callable[[Any], str]] = {
        "engine": lambda cost: cost.engine,
        "precision": lambda cost: cost.precision,
        "time": lambda cost: f"{cost.milliseconds:.0f} ms",
        "ratio": lambda cost: f"{cost.ratio:.2f}x",
        "cosine": lambda cost: f"{cost.cosine:.4f}",
        "share": lambda cost: f"{cost.share:.1%}",
        "G MACs": lambda cost: f"{cost.giga_multiply_adds:.1f}",
    }
    title = f"Encoding one video, random weights, {here['device']}, {here['cores']} cores"
    note = (
        f"ratio: how many times as fast as {engines[0]} in float32 without clustering, in the same run. cosine: to\n"
        "float32 with the same clustering. share: of the time, in clustering. G MACs: billions of multiply-adds."
    )
    _print_costs(title, note, columns, measure, _chosen(quick, tower, setting), here if as_json else None)


@app.command(epilog="Example: centerclip bench memory --quick")
def memory(
    quick: Quick = False,
    tower: Towers = "all",
    setting: Settings = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure the memory that training needs.

    The activations kept for the backward pass of one video, with and without clustering.
    """
    from ..evaluation.costs import MemoryCost, memory_costs
    from ..model.centerclip import find_device

    target = str(find_device(device))

    def measure(name: str, frames: int, settings: Iterable[str]) -> Iterable[MemoryCost]:
        return memory_costs(name, frames, settings, device=target)

    columns: dict[str, Callable[[Any], str]] = {
        "saved": lambda cost: f"{cost.megabytes:.0f} MB",
        "of none": lambda cost: f"{cost.ratio:.2f}",
        "less": lambda cost: f"{1 - cost.ratio:.0%}",
    }
    title = "Saved for the backward pass of one video, float32, random weights"
    note = "The paper reports 32 to 35 % less GPU memory in training at such settings (weights included)."
    _print_costs(title, note, columns, measure, _chosen(quick, tower, setting), {} if as_json else None)


def _print_costs(
    title: str,
    note: str,
    columns: dict[str, Callable[[Any], str]],
    measure: Callable[[str, int, Iterable[str]], Iterable[Any]],
    chosen: list[tuple[str, int, tuple[str, ...]]],
    json_fields: dict[str, object] | None,
) -> None:
    """Measure, and print a table or, with the further ``json_fields``, JSON lines."""
    from rich.console import Console
    from rich.markup import escape

    table = make_table(title, "tower", "frames", "clustering", *columns, left=("tower", "clustering"))
    with Console(stderr=True).status("") as status:
        for name, frames, settings in chosen:
            status.update(f"{name}, {frames} frames: {', '.join(settings)}")
            for cost in measure(name, frames, settings):
                if json_fields is not None:
                    typer.echo(json.dumps({**asdict(cost), **json_fields}))
                cells = (show(cost) for show in columns.values())
                table.add_row(cost.tower, str(cost.frames), escape(cost.clustering), *cells)
            table.add_section()
    if json_fields is None:
        Console().print(table)
        Console().print(note)


def _chosen(quick: bool, tower: str, settings: list[str] | None) -> list[tuple[str, int, tuple[str, ...]]]:
    """Tower, frames and clustering of what is measured."""
    from ..cluster import Setting
    from ..evaluation.costs import PAPER, PATCH_SIZES

    if settings:
        parsed = tuple(str(Setting.parse(each)) for each in settings)
        return [(name, 12, parsed) for name in PATCH_SIZES if tower in ("all", name)]
    return [group for group in PAPER if tower in ("all", group[0]) and not (quick and group[1] != 12)]
