"""The examples of docs/extending.md, as they stand there; one of them from a package that is installed."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from centerclip import CenterCLIP, attach, detach
from centerclip.cli import app
from centerclip.cluster import Clusters, Setting
from centerclip.data import load
from centerclip.errors import ClusterError, ExtensionError, ModelError, SettingError
from centerclip.extend import Registry, backbones, datasets, method, methods
from centerclip.model import Backbone, open_encoder
from centerclip.model.backbone import new_backbone
from centerclip.model.checkpoints import Sizes
from centerclip.reports import catalogue
from centerclip.reports.catalogue import find_report
from tests.model import tiny
from tests.training.commands import centerclip
from tests.training.world import RECIPE, make_world

DOC = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', DOC, re.DOTALL))


@pytest.fixture
def registered():
    """What a test registers is gone after it."""
    kept = [(each, dict(each._known)) for each in (methods, datasets, backbones)]
    yield
    for registry, known in kept:
        registry._known = known


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"), clips=3, frames=4)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package of the documentation, installed into a folder."""
    source, site = tmp_path_factory.mktemp("salient"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "salient_tokens.py"):
        (source / name).write_text(FILES[name], encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", site]
    subprocess.run([*pip, "install", *options, source], check=True, timeout=100)
    return site


@pytest.fixture
def installed(package, registered, monkeypatch):
    monkeypatch.syspath_prepend(package)
    yield package
    sys.modules.pop("salient_tokens", None)


def command(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_method_of_an_installed_package_in_the_notation_and_attached(installed):
    assert "salient" in methods.names()
    assert "salient_tokens" not in sys.modules  # names need no import
    setting = Setting.parse("salient[metric=cosine]:B2-4,9")
    assert str(setting) == "salient[metric=cosine]:B2-4,9"
    assert (setting.options, setting.needs_torch, setting.proportional) == ({"metric": "cosine"}, True, False)
    with pytest.raises(SettingError, match="metric must be euclidean or cosine"):
        Setting.parse("salient[metric=other]:B2-4,9")
    with pytest.raises(SettingError, match="salient takes metric, proportional"):
        Setting.parse("salient[sigma=1]:B2-4,9")
    with pytest.raises(SettingError, match='did you mean "salient"'):
        Setting.parse("salent:B2-4,9")
    vision = tiny.clip().vision_model
    pixels = torch.randn(24, 3, tiny.SIDE, tiny.SIDE)
    vectors = {}
    for name in ("salient", "salient[metric=cosine]", "salient[proportional]", "kmedoids"):
        attachment = attach(vision, f"{name}:B2-4,9", frames=12)
        with torch.no_grad(), attachment.record() as kept:
            vectors[name] = vision(pixels).pooler_output
        detach(vision)
        assert vectors[name].shape == (8, 32)
        assert (kept[0].ids.diff(dim=1) > 0).all()
    assert len({tuple(each.flatten().tolist()) for each in vectors.values()}) == 4


def test_it_trains_evaluates_and_is_a_row_of_the_report(installed, world, tmp_path, monkeypatch):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE.replace("B2-2,8", "salient:B2-2,8").replace("epochs = 3", "epochs = 1"))
    trained = json.loads(command("train", recipe, "--root", world, "-o", tmp_path / "run", "--workers", 0, "--json"))
    settings = json.loads((Path(trained["model"]) / "centerclip.json").read_text())
    assert settings["clustering"] == "salient:B2-2,8"
    assert settings["needs"] == "salient-tokens 0.1"
    evaluated = json.loads(command("evaluate", trained["model"], "folder", "--root", world, "--json"))
    assert evaluated["clustering"] == "salient:B2-2,8"
    assert evaluated["metrics"]["t2v"] == pytest.approx(trained["test"]["t2v"])
    assert "salient" in [row.label for row in find_report("methods").rows]
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(installed)])  # other processes get it
    missing = centerclip(tmp_path / "output", "evaluate", trained["model"], "folder", "--root", world)
    assert missing.code == 1
    assert 'saved with the clustering "salient:B2-2,8"' in missing.stderr
    assert "salient-tokens 0.1, which is not here: install or import it" in missing.stderr
    options = ("--clustering", "B2-2,8", "--json")
    other = centerclip(tmp_path / "output", "evaluate", trained["model"], "folder", "--root", world, *options)
    assert json.loads(other.stdout)["clustering"] == "B2-2,8"


def test_the_row_of_the_report_is_run(installed, world, tmp_path, monkeypatch):
    report = find_report("methods")
    two = replace(report, rows=(report.rows[0], report.rows[-1]))  # all others take their time
    monkeypatch.setattr(catalogue, "find_report", lambda name: two)
    torch.manual_seed(0)
    sizes = Sizes(image_size=48, patch_size=8, width=16, blocks=6, heads=2, text_width=16, text_blocks=1, text_heads=2,
                  projection=8, max_tokens=64)  # fmt: skip
    CenterCLIP(new_backbone(sizes, ["a red square moves"], vocabulary=520)).save_pretrained(tmp_path / "model")
    options = ("--data", "minivtt", "--no-training", "--workers", 0, "--json")
    folders = ("--model", tmp_path / "model", "--runs", tmp_path / "runs", "--output", tmp_path / "out")
    report = json.loads(command("report", "run", "methods", "--root", world, *options, *folders))
    rows = {row["label"]: row for row in report["rows"]}
    assert rows["salient"]["clustering"] == "salient:B3-4,36"
    assert 0 <= rows["salient"]["metrics"]["t2v"]["R1"] <= 100


def test_a_method_for_numpy_too_runs_on_onnx_runtime(registered, tmp_path):
    @method("every-other", numpy=True)
    def every_other(tokens, k, *, start: int = 1):
        ids = np.arange(start, start + 2 * k, 2)[None].repeat(len(tokens), 0)
        return ids if isinstance(tokens, np.ndarray) else torch.from_numpy(ids)

    setting = "every-other[start=3]:B2-4,9"
    tiny.center_clip(setting).save_pretrained(tmp_path)
    engines = [open_encoder(tmp_path, engine=name, precision="float32") for name in ("onnxruntime", "torch")]
    squares, mask = tiny.videos().numpy(), np.ones((2, 12), bool)
    first, second = (each.encode_windows(squares, mask)[0] for each in engines)
    assert str(engines[0].clustering) == setting
    assert np.allclose(first, second, atol=1e-5)


def test_a_function_for_tensors_alone_is_not_given_arrays(registered, tmp_path):
    @method("first")
    def first(tokens, k):
        return torch.arange(k).repeat(len(tokens), 1)

    tiny.center_clip("first:B2-4,9").save_pretrained(tmp_path)
    assert open_encoder(tmp_path).engine == "torch"
    with pytest.raises(ModelError, match='"first:B2-4,9" is for torch alone'):
        open_encoder(tmp_path, engine="onnxruntime")


def test_a_merging_method_keeps_means(registered):
    @method("halves", merge=True)
    def halves(tokens, k):
        half = tokens.shape[1] // 2
        assignment = (torch.arange(tokens.shape[1]) >= half).long().repeat(len(tokens), 1)
        return Clusters(torch.tensor([[0, half]]).repeat(len(tokens), 1), assignment)

    model = tiny.center_clip("halves:B2-4,2")
    assert model.clustering.proportional
    hidden = {}
    handle = model.attachment.blocks[2].register_forward_pre_hook(lambda _, inputs: hidden.update(tokens=inputs[0]))
    before = model.attachment.blocks[1].register_forward_hook(
        lambda _, __, output: hidden.update(whole=output), prepend=True
    )
    model.encode_videos(list(tiny.videos(1)))
    handle.remove()
    before.remove()
    patches = hidden["whole"][:, 1:].reshape(4, 48, -1)
    assert torch.allclose(hidden["tokens"][:, 1], patches[:, :24].mean(1), atol=1e-5)
    assert torch.allclose(hidden["tokens"][:, 2], patches[:, 24:].mean(1), atol=1e-5)


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (lambda tokens, k: torch.zeros(len(tokens), k + 1, dtype=torch.long), r"must return ids \[4, 9\] of 48 tokens"),
        (lambda tokens, k: torch.full((len(tokens), k), 48), "returned ids outside 0 to 47"),
        (lambda tokens, k: None, r"must return ids \[4, 9\]"),
    ],
)
def test_what_a_method_returns_is_checked(registered, returned, complaint):
    method("wrong")(returned)
    model = tiny.center_clip("wrong:B2-4,9")
    with pytest.raises(ClusterError, match=f'method "wrong" {complaint}'):
        model.encode_videos(list(tiny.videos(1)))


def test_proportional_weighs_ids_alone_by_the_nearest_token(registered):
    method("first")(lambda tokens, k: torch.arange(k).repeat(len(tokens), 1))
    weighed, plain = (
        tiny.center_clip(text).encode_video(tiny.videos(1)[0]).vector
        for text in ("first[proportional]:B2-4,5", "first:B2-4,5")
    )
    assert torch.isfinite(weighed).all()
    assert not torch.equal(weighed, plain)


def test_wrong_names_and_options_are_refused(registered):
    with pytest.raises(ExtensionError, match='"kmedoids" is built in'):
        method("kmedoids")
    with pytest.raises(ExtensionError, match="must be of the characters"):
        method("My Method")

    @method("untyped")
    def untyped(tokens, k, *, size: list):
        return size

    with pytest.raises(ExtensionError, match='option "size" of "untyped"'):
        Setting.parse("untyped:B2-4,9")

    @method("typed")
    def typed(tokens, k, *, size: int = 1, way: Literal["up", "down"] = "up", fast: bool = False):
        return size, way, fast

    setting = Setting.parse("typed[size=3,way=down,fast]:B2-4,9")
    assert setting.options == {"size": 3, "way": "down", "fast": True}


def test_a_package_that_cannot_be_imported_is_named(registered, tmp_path, monkeypatch):
    metadata = tmp_path / "broken_package-2.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-package\nVersion: 2.0\n")
    (metadata / "entry_points.txt").write_text("[centerclip.test]\nbroken = no_such_module:function\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry("centerclip.test")
    assert registry.names() == ["broken"]
    with pytest.raises(ExtensionError, match=r'"broken" of broken-package 2\.0 cannot be loaded: No module named'):
        registry.get("broken")


def test_a_data_set_from_a_json_file(registered, world, tmp_path, monkeypatch):
    (tmp_path / "cooking.py").write_text(FILES["cooking.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("cooking")
    parts = {"train": "training", "val": "validation", "test": "testing"}
    rows = {split: load("folder", world, split).videos for split in parts}
    clips = [{"file": clip.id, "part": parts[split], "steps": clip.captions} for split in rows for clip in rows[split]]
    (tmp_path / "cooking.json").write_text(json.dumps({"clips": clips}))
    data = load("cooking", world, "test", annotations=tmp_path)
    assert data.fingerprint == load("folder", world, "test").fingerprint
    model = tmp_path / "model"
    tiny.center_clip(frames=4).save_pretrained(model)
    shared = ("--root", world, "--annotations", tmp_path, "--json")
    verified = json.loads(command("data", "verify", "cooking", *shared))
    assert verified["ok"]
    own, folder = (
        json.loads(command("evaluate", model, name, "--root", world, "--json", *more))["metrics"]
        for name, more in (("cooking", ("--annotations", tmp_path)), ("folder", ()))
    )
    assert own == folder
    recipe = tmp_path / "mine.toml"
    text = RECIPE.replace("epochs = 3", "epochs = 1") + '[data]\nbenchmark = "cooking"\n'
    recipe.write_text(text)
    trained = json.loads(command("train", recipe, *shared, "-o", tmp_path / "run", "--workers", 0))
    assert "cooking test" in trained["test"]["label"]


def test_a_backbone(registered, tmp_path, monkeypatch):
    (tmp_path / "adapter.py").write_text(FILES["adapter.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    from_clip = import_module("adapter").from_clip
    plain = tiny.center_clip("B2-4,9")
    model = CenterCLIP(Backbone(from_clip(tiny.clip()), plain.tokenizer, plain.preprocess), clustering="B2-4,9")
    video, text = list(tiny.videos(1)), ["a dog"]
    assert torch.allclose(model.encode_videos(video)[0].vector, plain.encode_videos(video)[0].vector, atol=1e-6)
    assert {name for name, each in model.named_parameters() if each.requires_grad} == {
        f"backbone.{part}_adapter.{kind}" for part in ("image", "text") for kind in ("weight", "bias")
    }
    with torch.no_grad():
        model.backbone.text_adapter.bias.fill_(0.5)
        model.backbone.image_adapter.weight.copy_(torch.eye(24).flip(0))
    model.save_pretrained(tmp_path / "saved")
    again = CenterCLIP.from_pretrained(tmp_path / "saved", device="cpu")
    assert type(again.backbone).__name__ == "AdapterCLIP"
    assert torch.allclose(again.encode_text(text), model.encode_text(text), atol=1e-6)
    assert not torch.allclose(again.encode_text(text), plain.encode_text(text), atol=1e-3)
    assert torch.allclose(again.encode_videos(video)[0].vector, model.encode_videos(video)[0].vector, atol=1e-6)
    assert open_encoder(tmp_path / "saved").engine == "torch"
    backbones._known.clear()
    with pytest.raises(ModelError, match=r"of type 'clip-adapter'.*If it is of a package, install that"):
        CenterCLIP.from_pretrained(tmp_path / "saved")
