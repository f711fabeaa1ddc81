import math
import re
import tomllib

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
    long, tower16, clip4clip = benchmark == "activitynet", row.startswith("b16"), row == "b32-seqTransf"
    if clip4clip:
        assert (recipe.model.frames, recipe.model.max_tokens) == ((64, 64) if long else (12, 32))
        assert (recipe.train.optimizer, recipe.train.lr, recipe.train.temporal_lr) == ("bertadam", 1e-7, 1e-4)
        assert (recipe.train.epochs, recipe.train.paper_gpus) == (5, 8 if long else 4)
    else:
        assert (recipe.model.frames, recipe.model.max_tokens) == ((60, 77) if long else (12, 32))
        assert (recipe.train.optimizer, recipe.train.lr) == ("adamw", 1e-5 if long else 5e-6)
        assert recipe.train.epochs == (8 if long else 5)
        assert (
            recipe.train.paper_gpus
            == {(False, False): 2, (True, False): 8, (False, True): 8, (True, True): 32}[long, tower16]
        )
    assert (recipe.protocol, recipe.data.validate_on) == ("published", "test")
    assert (recipe.train.batch_size, recipe.train.seed, recipe.model.similarity) == (128, 42, "renormalise")
    assert len(recipe.train.freeze) == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=1", r"no setting train\.lrr; did you mean train\.lr\?"),
        ("train.learning_rate=1", r"did you mean train\.lr\?"),
        ("model.batch_size=1", r"did you mean train\.batch_size\?"),
        ("train.zzzz=1", r"known are train\.optimizer, train\.lr, "),
        ("zzzz=1", r"no setting zzzz; known are protocol, model, data, train"),
        ("protocol=publish", r"protocol: 'publish' is not one of published, clean; did you mean published\?"),
        ("train.protocol=clean", r"no setting train\.protocol; did you mean protocol\?"),
        ("data.benchmark=msrvt", r"data\.benchmark: unknown benchmark 'msrvt'.*did you mean msrvtt\?"),
        ("train.min_logit_scale=5", r"min_logit_scale must be less than max_logit_scale"),
        ("train.precision=bfloat61", r"did you mean bfloat16\?"),
        ("model.clustering=B6-5,49", r"12 frames into 5 segments; possible are 1, 2, 3, 4, 6, 12"),
        ("model.clustering=B6-4", r"model\.clustering: .*B6-4"),
        ("train.lr=-1", r"train\.lr: .*greater than 0"),
        ("train.lr=fast", r"train\.lr: .*number"),
        ("train.micro_batch=256", r"micro_batch 256 is more than batch_size 128"),
        ("lr=1", r"no setting lr; did you mean train\.lr\?"),
        ("train.lr", r"section\.setting=value"),
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


@pytest.mark.parametrize("protocol", ["published", "clean"])
def test_toml_round_trip(protocol):
    content = {"protocol": protocol, "model": {"start": 'a "quoted\\ name'}, "train": {"lr": 3e-7}}
    recipe = make_recipe(content, source="here")
    assert make_recipe(tomllib.loads(to_toml(recipe)), source="there") == recipe


@pytest.mark.parametrize(
    ("benchmark", "train"),
    [("msrvtt", "train+val"), ("msrvtt-7k", "train+val"), ("activitynet", "train+val"), ("msvd", "train"),
     ("lsmdc", "train"), ("didemo", "train"), ("folder", "train")],
)  # fmt: skip
def test_the_authors_train_on_the_whole_list_and_choose_on_the_test_split(benchmark, train):
    published, clean = (
        make_recipe({"protocol": protocol, "data": {"benchmark": benchmark}}, source="")
        for protocol in ("published", "clean")
    )
    assert (published.data.train, published.data.validate_on) == (train, "test")
    assert (clean.data.train, clean.data.validate_on) == ("train", "val")
    assert (published.train.max_logit_scale, clean.train.max_logit_scale) == (4.6052, math.log(100))


def test_what_a_recipe_names_is_not_left_to_the_protocol():
    content = {"data": {"train": "train", "validate_on": "val"}, "train": {"max_logit_scale": 4.0}}
    recipe = make_recipe({"protocol": "published", **content}, source="")
    assert (recipe.data.train, recipe.data.validate_on, recipe.train.max_logit_scale) == ("train", "val", 4.0)


@pytest.mark.parametrize(("protocol", "divisor"), [("published", 8), ("clean", 1)])
def test_the_papers_gpus_matter_to_the_published_protocol_alone(protocol, divisor):
    assert make_recipe({"protocol": protocol, "train": {"paper_gpus": 8}}, source="").gradient_divisor == divisor


def test_another_protocol_is_not_resumed(tmp_path):
    open_run(tmp_path, make_recipe({"protocol": "published"}, source=""))
    with pytest.raises(TrainingError, match=r"other settings: protocol clean \(was published\); "):
        open_run(tmp_path, Recipe())


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
    with pytest.raises(RecipeError, match=r"did you mean msrvtt/b32-B6-4-49\?"):
        find_recipe("msrvtt/b32-B6-4-48")
