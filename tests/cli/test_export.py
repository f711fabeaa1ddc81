"""``centerclip export``: a model that opens without torch and without its source."""

import json

from typer.testing import CliRunner

from centerclip.bundled import demo_model
from centerclip.cli import app
from centerclip.model.engine import open_encoder

run = CliRunner().invoke


def test_export_writes_a_model_that_opens(tmp_path):
    target = tmp_path / "out" / "model"
    result = run(app, ["export", str(demo_model()), "-o", str(target), "--precision", "float32", "--json"])
    exported = json.loads(result.output)
    assert exported["precisions"] == ["float32"]
    assert {path.name: path.stat().st_size for path in target.iterdir()} == exported["files"]
    assert not list(target.glob("*.safetensors"))
    encoder = open_encoder(target, engine="onnxruntime")
    original = open_encoder(demo_model(), engine="onnxruntime")
    assert encoder.fingerprint() == original.fingerprint()
    assert str(encoder.clustering) == str(original.clustering)
    again = run(app, ["export", str(target), "-o", str(tmp_path / "copy")])
    assert "Wrote" in again.output
    assert "float32" in again.output


def test_export_says_what_it_cannot_write(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result = run(app, ["export", str(demo_model()), "-o", str(tmp_path), "--precision", "float32"])
    assert "name a new folder with -o" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert run(app, ["export", "demo", "-o", str(tmp_path / "x"), "--precision", "float16"]).exit_code == 2
