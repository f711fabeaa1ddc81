"""docs/commands.md is what the commands say of themselves."""

import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_reference_is_up_to_date():
    command = ["-m", "typer", "centerclip.cli", "utils", "docs", "--name", "centerclip", "--title", "Commands"]
    made = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout
    assert made.strip() == REFERENCE.read_text(encoding="utf-8").strip(), "run `make reference`"
