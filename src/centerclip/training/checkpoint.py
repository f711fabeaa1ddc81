"""Where a run is, on disk: written so that a crash at any moment leaves a whole checkpoint behind."""

import errno
import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from .errors import CheckpointError

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
