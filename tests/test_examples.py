"""The notebooks in examples/ run from top to bottom, as they stand there."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from centerclip.bundled import film_clips

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, folder, monkeypatch):
    """Run the code cells of a notebook in a folder; returns the names that they leave."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    book = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    names = {}
    for cell in book["cells"]:
        assert not cell.get("outputs"), "notebooks are kept without outputs"
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


def test_search_a_folder(tmp_path, monkeypatch):
    names = run("search", tmp_path, monkeypatch)
    with (film_clips() / "clips.csv").open(newline="", encoding="utf-8") as file:
        (bear,) = [row for row in csv.DictReader(file) if "polar bear" in row["query"]]
    assert names["hits"][0].path.name == bear["clip"]
    assert names["sheet"].width > 600


def test_clustering_inside_a_vit(tmp_path, monkeypatch):
    names = run("clustering", tmp_path, monkeypatch)
    assert names["step"].tokens.shape == (4, 17, 64)
    assert isinstance(names["sheet"], Image.Image)
    assert names["sheet"].tobytes() != names["random_sheet"].tobytes()


def test_training_on_ones_own_clips(tmp_path, monkeypatch):
    names = run("training", tmp_path, monkeypatch)
    assert {name: len(split) for name, split in names["splits"].items()} == {"train": 40, "val": 10, "test": 10}
    assert (tmp_path / "my-run" / "best" / "centerclip.json").is_file()
    assert 0 <= names["result"].metrics["t2v"]["R1"] <= 100


def test_comparing_two_methods(tmp_path, monkeypatch):
    names = run("comparing", tmp_path, monkeypatch)
    gain = names["gains"]["R1"]
    assert gain.low <= names["differences"][0] <= gain.high


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_notebook_is_named_in_the_list(path):
    assert f"({path.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
