"""Files that are whole or not there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` fill a file beside ``path`` and move it there in one step."""
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        write(Path(partial))
        Path(partial).chmod(0o666 & ~_umask())  # mkstemp makes files for their owner alone
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return path


def _umask() -> int:
    """What the system takes off new files; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
