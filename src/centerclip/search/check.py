"""Looks an index over: can it be read, do its vectors make sense, are its model and its files still there."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import CenterClipError
from .encoder import Encoder
from .lance import LanceStore
from .lock import is_busy
from .settings import IndexSettings, read_settings
from .store import View

ROUNDING = 0.01  # how far from 1 the norm of a stored vector may be


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: fine or not, and in words."""

    ok: bool
    what: str
    detail: str


def check_index(folder: Path) -> list[Finding]:
    """Look at everything that a search needs. The first thing that cannot be read ends the list."""
    try:
        settings = read_settings(folder)
        findings = [Finding(True, "settings", settings.describe())]
        view = LanceStore(folder, settings.width).view()
    except CenterClipError as error:
        return [Finding(False, "index", str(error))]
    findings.append(Finding(True, "database", f"{len(view.videos):,} videos, {view.count():,} segments"))
    findings += [_vectors(view), _files(view), _failures(view), _model(settings)]
    if is_busy(folder):
        findings.append(Finding(True, "writer", "a process is writing to the index now"))
    return findings


def _vectors(view: View) -> Finding:
    sample = view.sample(10_000)
    norms = np.linalg.norm(sample, axis=1)
    bad = int((~np.isfinite(norms) | (np.abs(norms - 1) > ROUNDING)).sum())
    if bad:
        return Finding(False, "vectors", f"{bad:,} of {len(sample):,} are no vectors of norm 1; use --reindex")
    return Finding(True, "vectors", f"{len(sample):,} looked at, all of norm 1")


def _files(view: View) -> Finding:
    gone = [path for path, file in view.files.items() if file.video and not Path(path).is_file()]
    if gone:
        return Finding(False, "files", f"{len(gone):,} are no longer there, such as {gone[0]!r}; run centerclip index")
    return Finding(True, "files", f"all {sum(bool(file.video) for file in view.files.values()):,} are there")


def _failures(view: View) -> Finding:
    failed = sum(bool(file.failure) for file in view.files.values())
    return Finding(
        True, "failures", f"{failed:,} files could not be read (centerclip status lists them)" if failed else "none"
    )


def _model(settings: IndexSettings) -> Finding:
    try:
        Encoder(settings).model()
    except CenterClipError as error:
        return Finding(False, "model", str(error))
    quick = "sentences are encoded without torch" if settings.files else "sentences need torch: a search starts slower"
    return Finding(True, "model", f"opens, and is the one that the index was made with; {quick}")
