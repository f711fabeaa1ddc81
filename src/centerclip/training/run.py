"""The folder of a run: its recipe, its log, and checkpoints that survive a crash at any moment.

Under torchrun only the main process writes here; every process reads.
"""

import errno
import json
import os
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..errors import CheckpointError, TrainingError, first_line
from ..files import lock_file, write_atomic
from .recipe import Recipe, flat, make_recipe, to_toml

RECIPE, LOG, CURVE, LOCK = "recipe.toml", "log.jsonl", "curve.png", "run.lock"
LAST, PREVIOUS = "last.pt", "previous.pt"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_run(folder: Path, recipe: Recipe) -> None:
    """Create the folder of a run; TrainingError if it has a run with other settings.

    Settings that may change on resume (``train.micro_batch``, for example) are recorded as they are now.
    """
    path = folder / RECIPE
    if path.exists():
        try:
            saved = make_recipe(tomllib.loads(path.read_text(encoding="utf-8")), source=str(path))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise TrainingError(f"{path} is damaged: {error}; choose another --output") from error
        if changed := recipe.differences(saved):
            raise TrainingError(
                f"{folder} has a run with other settings: {'; '.join(changed)}. Choose another --output, or remove it"
            )
        if recipe == saved or finished(folder):
            return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_toml(recipe))


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder of a run; TrainingError if another process does. The lock ends with the process."""
    with (folder / LOCK).open("ab") as file:
        if not lock_file(file):
            raise TrainingError(
                f"another process is training in {folder}. Wait until it is done, or choose another --output"
            )
        yield


def finished(folder: Path) -> bool:
    """Whether the run in a folder has finished."""
    return any(line["event"] == "end" for line in read_log(folder))


class RunLog:
    """Appends to ``log.jsonl`` and to TensorBoard's files.

    A resumed run drops what came after its checkpoint: after ``step`` steps, of which ``epochs`` epochs are validated.
    """

    def __init__(self, folder: Path, *, step: int, epochs: int) -> None:
        self.path = folder / LOG
        kept = [line for line in read_log(folder) if line["step"] <= step] if step else []
        kept = [line for line in kept if line["event"] != "validation" or line["epoch"] <= epochs]
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.path.open("a", encoding="utf-8")
        self._tensorboard = _tensorboard(folder / "tensorboard", step)

    def write(self, event: str, *, step: int, **values: Any) -> None:
        """Add a line. Numbers, and numbers inside dicts, also go to TensorBoard."""
        try:
            self._file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise TrainingError(
                f"the log {self.path} cannot be written: {error.strerror}. Free some space and run the same command "
                "again to resume"
            ) from error
        if self._tensorboard is not None:
            for name, value in flat(values, separator="/"):
                if isinstance(value, (int, float)):
                    self._tensorboard.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()


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


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # an optional extra: the log has everything
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write ``last.pt``; the one before becomes ``previous.pt``, and stays when writing fails (CheckpointError)."""
    last, previous = folder / LAST, folder / PREVIOUS

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            torch.save(state, file)
        if last.exists():
            last.replace(previous)

    with explain_write(last):
        write_atomic(last, write)


@contextmanager
def explain_write(path: Path) -> Iterator[None]:
    """Name the file or folder that cannot be written inside, and the checkpoint that is there.

    Raises:
        CheckpointError: it cannot be written, for example because the disk is full.
    """
    try:
        yield
    # torch's zip writer turns an OSError into a RuntimeError; safetensors has an error of its own
    except (OSError, RuntimeError, SafetensorError) as error:
        full = any(getattr(each, "errno", None) in DISK_FULL for each in (error, error.__context__))
        reason = "the disk is full" if full or "No space left" in str(error) else first_line(error)
        checkpoints = [path.parent / name for name in (LAST, PREVIOUS)]
        kept = next((each for each in checkpoints if each.exists()), None)
        fallback = f"{kept} is intact" if kept else "there is no earlier one"
        raise CheckpointError(
            f"{path} cannot be written: {reason}; {fallback}. Free some space and run the same command again to resume"
        ) from error


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint, or None where there is none. Tensors and plain values only: no code is run.

    Raises:
        CheckpointError: the newest one is damaged. It is not skipped silently, since training would be lost.
    """
    path = next((folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()), None)
    if path is None:
        return None
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not verify the checksums
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "step" not in state:
            raise ValueError("it is not the checkpoint of a run")
    except Exception as error:  # zipfile, pickle and torch raise many kinds
        previous = folder / PREVIOUS
        has_previous = path.name == LAST and previous.exists()
        advice = f"resume from {previous}, the one before" if has_previous else "start over"
        raise CheckpointError(f"{path} is damaged ({first_line(error)}); remove it to {advice}") from error
    return state
