import subprocess
import sys

import pytest
from typer.testing import CliRunner

from centerclip import __version__
from centerclip.cli import app

run = CliRunner().invoke


def test_demo_draws_and_compares(tmp_path):
    result = run(app, ["demo", "--picture", str(tmp_path / "demo.png")])
    assert result.exit_code == 0, result.output
    assert result.output.count("█") == 4 * 7
    assert all(method in result.output for method in ("kmedoids", "spectral", "sampling"))
    assert (tmp_path / "demo.png").stat().st_size > 1000


def test_a_wrong_setting_is_one_sentence_and_exit_code_1():
    command = [sys.executable, "-m", "centerclip", "demo", "--clustering", "B6-5,49"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.strip() == (
        'centerclip: "B6-5,49": 12 frames cannot be cut into 5 equal segments; valid are 1, 2, 3, 4, 6, 12'
    )


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["demo", "--clustring", "B6-4,7"], ["demo", "--clustering", "none"]]
)
def test_wrong_usage_is_exit_code_2(arguments):
    assert run(app, arguments).exit_code == 2


def test_version():
    assert run(app, ["--version"]).output.strip() == f"centerclip {__version__}"


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from centerclip.cli import app; print({'torch', 'transformers', 'av', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
