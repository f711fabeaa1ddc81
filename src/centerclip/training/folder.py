"""Where recipes are found, and the folder of a run."""

import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from .errors import RecipeError, TrainingError
from .log import read_log
from .recipe import Recipe, make_recipe, to_toml

RECIPE = "recipe.toml"


def recipes_folder() -> Path:
    """The recipes that come with CenterCLIP: inside an installed package, or beside ``src`` in a clone."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parents[1] / "recipes"


def list_recipes() -> Iterator[tuple[str, str]]:
    """Names such as ``msrvtt/b32-B6-4-49`` and what each is: the second line, after its command."""
    folder = recipes_folder()
    for path in sorted(folder.rglob("*.toml")):
        title = path.read_text(encoding="utf-8").splitlines()[1]
        yield path.relative_to(folder).with_suffix("").as_posix(), title.removeprefix("#").strip()


def find_recipe(name: str) -> Path:
    """A recipe by the path of its file, or by the name that ``--list`` shows.

    Raises:
        RecipeError: there is none; the nearest name is given.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    short = path.with_suffix("").as_posix().removeprefix("recipes/") if path.suffix == ".toml" else path.as_posix()
    known = [each for each, _ in list_recipes()]
    if short in known:
        return recipes_folder() / f"{short}.toml"
    close = get_close_matches(short, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "`centerclip train --list` shows those that come with it"
    raise RecipeError(f"there is no recipe {name}; {hint}")


def open_run(folder: Path, recipe: Recipe) -> None:
    """Make the folder of a run, or check that the run in it has the same settings.

    Raises:
        TrainingError: another run is in it.
    """
    path = folder / RECIPE
    if path.exists():
        try:
            before = make_recipe(tomllib.loads(path.read_text(encoding="utf-8")), source=str(path))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise TrainingError(f"{path} is damaged: {error}; take another --output") from error
        if changed := recipe.differences(before):
            raise TrainingError(
                f"{folder} has a run with other settings: {'; '.join(changed)}. Take another --output, or remove it"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{RECIPE}"
    scratch.write_text(to_toml(recipe), encoding="utf-8")
    scratch.replace(path)


def finished(folder: Path) -> bool:
    """Whether the run in a folder has come to its end."""
    return any(line["event"] == "end" for line in read_log(folder))
