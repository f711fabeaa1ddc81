"""What the commands say of themselves: docs/commands.md, an example for each, completion in the shell."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from centerclip.cli import app

REFERENCE = Path(__file__).parents[2] / "docs" / "commands.md"
START = "import sys; sys.argv = ['centerclip']; from centerclip.cli import main; main()"


def leaves(command, words=()):
    """Every command that does something, with the words that call it."""
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*words, name))
    if not hasattr(command, "commands"):
        yield pytest.param(command, words, id=" ".join(words))


def test_the_reference_is_up_to_date():
    command = ["-m", "typer", "centerclip.cli", "utils", "docs", "--name", "centerclip", "--title", "Commands"]
    made = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout
    assert made.strip() == REFERENCE.read_text(encoding="utf-8").strip(), "run `make reference`"


@pytest.mark.parametrize(("command", "words"), list(leaves(typer.main.get_command(app))))
def test_every_command_has_an_example_that_it_takes(command, words, tmp_path):
    for folder in ("Videos", "Clips"):
        (tmp_path / folder).mkdir()
    prefix = f"Example: centerclip {' '.join(words)}"
    assert command.epilog
    assert command.epilog.startswith(prefix)
    arguments = shlex.split(command.epilog.removeprefix(prefix).replace("~", str(tmp_path)))
    with command.make_context(" ".join(words), arguments):  # wrong options or missing arguments raise
        pass


@pytest.mark.parametrize(
    ("line", "expected"),
    [("centerclip ind", {"index"}), ("centerclip search --tim", {"--timeline"}), ("centerclip data ma", {"make"})],
)
def test_the_shell_completes_commands_and_options(line, expected):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_CENTERCLIP_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", START], env={**os.environ, **words}, capture_output=True, text=True, timeout=60
    )
    assert set(done.stdout.split()) == expected, done.stderr
