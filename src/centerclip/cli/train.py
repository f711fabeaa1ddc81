"""``centerclip train``: train by a recipe, on one process or, under torchrun, on many."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from .common import AllowMissing, Annotations, AsJson, ProgressBar, Protocol, Root, print_json, progress

if TYPE_CHECKING:
    from ..evaluation import Evaluation
    from ..training import Recipe
    from ..training.loop import Progress


def train(
    recipe: Annotated[
        str | None, Argument(help="A TOML file, or a name from --list such as msrvtt/b32-B6-4-49.")
    ] = None,
    root: Root = None,
    annotations: Annotations = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder of the run.", show_default="runs/RECIPE")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        Option("--set", metavar="SETTING=VALUE", help="Change a setting of the recipe: train.lr=1e-5. Repeatable."),
    ] = None,
    protocol: Protocol = None,
    select_on: Annotated[
        str | None, Option(help="Split on which the best epoch is chosen.", show_default="the recipe's")
    ] = None,
    allow_missing: AllowMissing = False,
    workers: Annotated[
        int | None,
        Option(min=0, help="Decoding processes per training process.", show_default="its share of the cores"),
    ] = None,
    show_list: Annotated[bool, Option("--list", help="List the built-in recipes and exit.")] = False,
    show: Annotated[bool, Option("--show", help="Print every setting of the recipe and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe.

    The same command again resumes a run that was stopped. `torchrun -m centerclip train ...` uses several GPUs.
    """
    from ..training.recipe import find_recipe, read_recipe, settings_help, to_toml

    if show_list:
        _print_list(as_json)
        return
    if recipe is None:
        if show:
            _print_settings(list(settings_help()))
            return
        raise typer.BadParameter("name a recipe; `centerclip train --list` lists the built-in ones.")
    path = find_recipe(recipe)
    options = {"protocol": protocol, "data.validate_on": select_on}
    changes = [f'{setting}="{value}"' for setting, value in options.items() if value]
    plan = read_recipe(path, [*(overrides or []), *changes])
    if show:
        print_json(plan.model_dump()) if as_json else typer.echo(to_toml(plan))
        return
    if root is None:
        raise typer.BadParameter(f"name the folder with the videos of {plan.data.benchmark} with --root.")
    folder = output or Path("runs") / f"{path.parent.name}-{path.stem}"
    _run(plan, root, annotations, folder, allow_missing, workers, as_json)


def _run(
    plan: "Recipe", root: Path, annotations: Path | None, folder: Path, allow_missing: bool, workers: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    from ..data import load, read_captions
    from ..distributed import processes
    from ..evaluation import evaluate
    from ..model import CenterCLIP
    from ..plots.figures import draw_curve
    from ..training.loop import BEST, Splits
    from ..training.loop import train as run
    from ..training.run import finished, open_run

    load_split = partial(
        load, plan.data.benchmark, root, annotations=annotations, allow_missing=allow_missing, protocol=plan.protocol
    )
    with processes() as group:

        def say(text: str) -> None:
            if group.main:
                typer.echo(text, err=as_json)

        table = plan.model.new.vocabulary_from if plan.model.start == "new" else ""
        further = read_captions("folder", root, plan.data.train, annotations=root / table) if table else {}
        vocabulary = tuple(caption for captions in further.values() for caption in captions)
        names = dict.fromkeys([plan.data.train, plan.data.validate_on, *([plan.data.test] if plan.data.test else [])])
        splits = {name: load_split(name) for name in names}
        data = Splits(splits[plan.data.train], splits[plan.data.validate_on], vocabulary)
        if group.main:
            open_run(folder, plan)
        group.barrier()
        say(f"Training on {data.train}, choosing the epoch on {data.select}, protocol {plan.protocol}")
        if plan.data.validate_on == plan.data.test:
            say("Warning: the best epoch is chosen on the test split, so the numbers on that split are too optimistic.")
        if finished(folder):
            say(f"The run in {folder} is finished; remove the folder to train again.")
        else:
            with progress("training", quiet=as_json or not group.main) as bar:
                run(plan, data, folder, group, workers=workers, on_step=lambda step: _show(bar, step),
                    on_validation=lambda epoch, result: say(_line(epoch, result)))  # fmt: skip
            if group.main:
                draw_curve(folder)
        best = CenterCLIP.from_pretrained(folder / BEST, device=group.device)
        evaluated = {
            name: evaluate(best, splits[name], workers=workers, group=group)
            for name in names
            if name in (plan.data.validate_on, plan.data.test)
        }
        if not group.main:
            return
        for result in evaluated.values():
            result.save(folder / "evaluation" / result.split)
        results = {key: evaluated[name] for key, name in (("select", plan.data.validate_on), ("test", plan.data.test))
                   if name}  # fmt: skip
        if as_json:
            content = {name: {"label": each.label(), **each.metrics} for name, each in results.items()}
            print_json({"folder": str(folder), "model": str(folder / BEST), **content})
        else:
            _print_end(folder, list(evaluated.values()))


def _line(epoch: int, result: "Evaluation") -> str:
    from ..evaluation.metrics import HEADINGS

    figures = "  ".join(f"{heading} {result.metrics['t2v'][name]:.1f}" for name, heading in HEADINGS.items())
    return f"epoch {epoch}: text-to-video {figures}  ({result.label()})"


def _print_end(folder: Path, results: "list[Evaluation]") -> None:
    from ..training.run import CURVE
    from .evaluate import print_results

    print_results(results)
    curve = folder / CURVE
    drawn = f", the learning curve in {curve}" if curve.exists() else ""  # no matplotlib, no curve
    typer.echo(f"The model of the best epoch is in {folder / 'best'}{drawn}.")
    typer.echo(f"Compare it with another run: centerclip evaluate --compare {folder} OTHER")


def _show(bar: ProgressBar, progress: "Progress") -> None:
    best = f"  best R@1 {progress.best['metrics']['t2v']['R1']:.1f}" if progress.best else ""
    epoch = f"epoch {progress.epoch}/{progress.epochs}"
    note = f"{epoch}  loss {progress.loss:.3f}  {progress.pairs_per_second:.1f} pairs/s{best}"
    bar(progress.step, progress.steps, note)


def _print_list(as_json: bool) -> None:
    from ..training.recipe import list_recipes

    recipes = list(list_recipes())
    if as_json:
        print_json([{"name": name, "what": title} for name, title in recipes])
        return
    width = max(len(name) for name, _ in recipes)
    for name, title in recipes:
        typer.echo(f"{name:<{width}}  {title}")


def _print_settings(settings: list[tuple[str, str, str]]) -> None:
    width = max(len(f"{name} = {default}") for name, default, _ in settings)
    for name, default, meaning in settings:
        typer.echo(f"{f'{name} = {default}':<{width}}  {meaning}".rstrip())
