"""Indexing that the page has started, and how far it is."""

import logging
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CenterClipError
from ..search import IndexReport, Progress
from .library import Library, valid_text
from .problems import Problem

log = logging.getLogger("centerclip.web")


@dataclass(frozen=True)
class Run:
    """How far indexing is, or how the last run ended.

    Attributes:
        running: this server is indexing now.
        finished: files that are in the index.
        total: files to do; None while that is not known.
        video_seconds: length of what was encoded.
        seconds: since the start.
        added: videos that the last run added.
        failed: files that it could not read.
        error: why it could not be done.
    """

    running: bool = False
    finished: int = 0
    total: int | None = None
    video_seconds: float = 0.0
    seconds: float = 0.0
    added: int | None = None
    failed: int | None = None
    error: str | None = None


class Indexing:
    """Adds folders in the background, one run at a time.

    Args:
        library: over the index.
        allowed: folders below this one may be added; None: none may.
    """

    def __init__(self, library: Library, allowed: Path | None) -> None:
        self.library, self.run = library, Run()
        self.allowed = None if allowed is None else allowed.expanduser().resolve()
        self._lock = threading.Lock()

    def start(self, folder: str | None) -> None:
        """Add a folder, or look again at all folders of the index."""
        if self.allowed is None:
            raise Problem("not-allowed", "Start the server with: centerclip serve --allow-folders DIR")
        paths = [] if folder is None else [self._permitted(folder)]
        status = self.library.status()
        with self._lock:
            if self.run.running or (status is not None and status.busy):
                raise Problem("index-busy", "Wait until indexing has finished, then try again.")
            self.run = Run(running=True)
        # The index is whole whenever the process ends, so nothing has to wait for this thread.
        threading.Thread(target=self._work, args=[paths], name="web-indexing", daemon=True).start()

    def _permitted(self, folder: str) -> Path:
        assert self.allowed is not None
        try:
            wanted = (self.allowed / Path(folder).expanduser()).resolve()
            there = wanted.is_relative_to(self.allowed) and wanted.is_dir()
        except (OSError, ValueError, RuntimeError):
            there = False
        if not there:  # the same words for both, so that nobody learns what else is on the machine
            raise Problem("not-allowed", f"There is no such folder in {valid_text(str(self.allowed))}.")
        return wanted

    def _work(self, paths: list[Path]) -> None:
        began = time.monotonic()
        try:
            report: IndexReport = self.library.index.add(*paths, on_progress=self._note)
        except CenterClipError as error:
            log.error("%s", error)
            self.run = replace(self.run, running=False, error=str(error))
        except Exception:
            log.exception("indexing failed")
            self.run = replace(self.run, running=False, error="indexing failed; the server's output says why")
        else:
            self.run = Run(
                finished=report.added + report.recognised,
                total=report.added + report.recognised,
                video_seconds=report.video_seconds,
                seconds=time.monotonic() - began,
                added=report.added,
                failed=len(report.failed),
            )
        self.library.forget()

    def _note(self, progress: Progress) -> None:
        self.run = Run(True, progress.finished, progress.total, progress.video_seconds, progress.seconds)
        self.library.forget()
