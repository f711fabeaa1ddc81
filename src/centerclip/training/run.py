"""The folder of a run: its recipe, its log, and checkpoints that survive a crash at any moment."""

import errno
import json
import os
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, TrainingError
from .recipe import Recipe, make_recipe, to_toml

RECIPE = "recipe.toml"


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


LOG, CURVE = "log.jsonl", "curve.png"


class RunLog:
    """Appends to ``log.jsonl`` and to TensorBoard's files. A run that goes on drops what came after its checkpoint.

    Args:
        folder: of the run.
        step: steps that are done.
        epochs: epochs that are trained and validated.
    """

    def __init__(self, folder: Path, *, step: int, epochs: int) -> None:
        self.path = folder / LOG
        kept = [
            line
            for line in (read_log(folder) if step else [])
            if line["step"] <= step and not (line["event"] == "validation" and line["epoch"] > epochs)
        ]
        scratch = folder / f".{LOG}.writing"
        scratch.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        scratch.replace(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        self._board = _board(folder / "tensorboard", step)

    def write(self, event: str, *, step: int, **values: Any) -> None:
        """Add a line. Numbers, and numbers inside tables, also go to TensorBoard."""
        try:
            self._file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise TrainingError(f"the log {self.path} could not be written: {error.strerror}. Make room and give the "
                                "same command again") from error  # fmt: skip
        if self._board is not None:
            for name, value in _numbers(values):
                self._board.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """End the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _numbers(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((f"{prefix}{name}", float(value)))
    return found


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log. A last line that a crash cut short is left out."""
    path = folder / LOG
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # the log has everything; TensorBoard is for those who installed it
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)


LAST, PREVIOUS = "last.pt", "previous.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write ``last.pt``; what was there becomes ``previous.pt``.

    Raises:
        CheckpointError: it cannot be written, for example because the disk is full. The old one is still there.
    """
    target = folder / LAST
    scratch = folder / f".{LAST}.writing"
    try:
        with scratch.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            target.replace(folder / PREVIOUS)
        scratch.replace(target)
    except (OSError, RuntimeError) as error:  # torch's zip writer turns a full disk into a RuntimeError
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "write" in str(error)
        scratch.unlink(missing_ok=True)
        reason = "the disk is full" if full else str(error).strip().splitlines()[0]
        kept = LAST if target.exists() else PREVIOUS if (folder / PREVIOUS).exists() else None
        advice = f"{folder / kept} is whole" if kept else "there is no earlier one"
        raise CheckpointError(
            f"the checkpoint {target} could not be written: {reason}; {advice}. Make room and give the same command "
            "again to go on from there"
        ) from error


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint, or None where there is none. Tensors and plain values only: no code is run.

    Raises:
        CheckpointError: the newest one is damaged. It is not passed over silently.
    """
    for name in (LAST, PREVIOUS):
        path = folder / name
        if path.exists():
            return _read(path)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not look at the checksums
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "step" not in state:
            raise ValueError("it is not a checkpoint of a run")
    except Exception as error:  # zipfile, pickle and torch have many kinds
        other = path.with_name(PREVIOUS)
        way = (
            f"remove it to go on from {other}, the one before"
            if path.name == LAST and other.exists()
            else "remove it to start anew"
        )
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CheckpointError(f"{path} is damaged ({reason}); {way}") from error
    return state
