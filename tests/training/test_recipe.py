import re

import pytest

from centerclip.training import RecipeError, TrainingError
from centerclip.training.recipe import (
    Recipe,
    find_recipe,
    list_recipes,
    make_recipe,
    read_recipe,
    recipes_folder,
    to_toml,
)
from centerclip.training.run import open_run

RECIPES = [name for name, _ in list_recipes()]


def write(path, text=""):
    path.write_text(text)
    return path


def test_every_row_of_the_tables_has_a_recipe():
    rows = {
        "msvd": ["b32-none", "b32-seqTransf", "b32-B6-4-49", "b32-B6-3-49", "b32-spectral-B6-4-49",
                 "b32-spectral-B6-3-49", "b16-none", "b16-B6-4-160"],
        "lsmdc": ["b32-none", "b32-seqTransf", "b32-B6-6-49", "b32-B6-4-49", "b32-spectral-B6-6-49",
                  "b32-spectral-B6-4-49", "b16-none", "b16-B6-4-160"],
        "activitynet": ["b32-none", "b32-seqTransf", "b32-B6-15-49", "b32-B6-12-49", "b32-spectral-B6-20-49",
                        "b32-spectral-B6-15-49", "b16-B6-15-160"],
    }  # fmt: skip
    rows["msrvtt"] = rows["msrvtt-7k"] = rows["msvd"]
    assert {f"{benchmark}/{row}" for benchmark, names in rows.items() for row in names} <= set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_open_with_their_command_and_name_their_own_setting(name):
    path = recipes_folder() / f"{name}.toml"
    text = path.read_text()
    assert text.startswith(f"# centerclip train recipes/{name}.toml --root ")
    recipe = read_recipe(path)
    if name.startswith("minivtt"):
        return
    benchmark, row = name.split("/")
    assert recipe.data.benchmark == benchmark
    setting = recipe.model.clustering.replace(":", "-").replace(",", "-")
    assert row.endswith(setting if recipe.model.temporal == "none" else "seqTransf")
    assert recipe.model.start.endswith("patch16" if row.startswith("b16") else "patch32")
    assert re.search(r"text to video( +[\d.-]+){5}\n", text)
    long = benchmark == "activitynet"
    assert (recipe.model.frames, recipe.model.max_tokens) == ((60, 77) if long else (12, 32))
    assert (recipe.train.lr, recipe.train.epochs) == ((1e-5, 8) if long else (5e-6, 5))
    assert (recipe.train.batch_size, recipe.train.seed, recipe.model.similarity) == (128, 42, "renormalise")
    assert len(recipe.train.freeze) == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=1", r"no setting train\.lrr; did you mean train\.lr\?"),
        ("train.learning_rate=1", r"did you mean train\.lr\?"),
        ("model.batch_size=1", r"did you mean train\.batch_size\?"),
        ("train.zzzz=1", r"known are train\.lr, "),
        ("train.precision=bfloat61", r"did you mean bfloat16\?"),
        ("model.clustering=B6-5,49", r"12 frames into 5 segments; possible are 1, 2, 3, 4, 6, 12"),
        ("model.clustering=B6-4", r"model\.clustering: .*B6-4"),
        ("train.lr=-1", r"train\.lr: .*greater than 0"),
        ("train.lr=fast", r"train\.lr: .*number"),
        ("train.micro_batch=256", r"micro_batch 256 is more than batch_size 128"),
        ("lr=1", r"section\.setting=value"),
        ("train.lr.x=1", r"train\.lr"),
    ],
)
def test_a_wrong_setting_is_named_with_the_nearest_right_one(tmp_path, override, message):
    with pytest.raises(RecipeError, match=message):
        read_recipe(write(tmp_path / "r.toml", "[train]\nlr = 1e-3\n"), [override])


def test_overrides_take_the_types_of_toml(tmp_path):
    recipe = read_recipe(write(tmp_path / "r.toml"), [
        "train.lr=1e-5", "model.clustering=spectral:B6-4,49", 'train.freeze=["pre-norm"]',
        "train.gradient_checkpointing=true",
    ])  # fmt: skip
    assert (recipe.train.lr, recipe.model.clustering) == (1e-5, "spectral:B6-4,49")
    assert recipe.train.freeze == ("pre-norm",)
    assert recipe.train.gradient_checkpointing


def test_toml_round_trip():
    import tomllib

    recipe = make_recipe({"model": {"start": 'a "quoted\\ name'}, "train": {"lr": 3e-7}}, source="here")
    assert make_recipe(tomllib.loads(to_toml(recipe)), source="there") == recipe


def test_a_folder_keeps_one_run(tmp_path):
    open_run(tmp_path / "run", Recipe())
    open_run(tmp_path / "run", Recipe())
    harmless = make_recipe({"train": {"checkpoint_minutes": 1}}, source="")
    open_run(tmp_path / "run", harmless)
    with pytest.raises(TrainingError, match=r"train\.lr 1\.0 \(was 5e-06\)"):
        open_run(tmp_path / "run", make_recipe({"train": {"lr": 1}}, source=""))


def test_recipes_are_found_by_name_and_by_file(tmp_path):
    own = write(tmp_path / "own.toml")
    assert find_recipe(str(own)) == own
    by_name, by_file = find_recipe("msrvtt/b32-B6-4-49"), find_recipe("recipes/msrvtt/b32-B6-4-49.toml")
    assert by_name.resolve() == by_file.resolve()
    assert find_recipe("minivtt/stills") == find_recipe("minivtt/images")  # its former name
    with pytest.raises(RecipeError, match=r"did you mean msrvtt/b32-B6-4-49\?"):
        find_recipe("msrvtt/b32-B6-4-48")
