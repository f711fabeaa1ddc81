"""What a process that is going to be killed does: index a folder, and say through a pipe what is done."""

import os
import resource
from multiprocessing.connection import Connection
from pathlib import Path


def index(pipe: Connection, folder: str, videos: str, model: str, file_limit: int = 0) -> None:
    """Send (finished, total) after every commit that has something and wait for an answer; at the end the outcome."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from centerclip.errors import CenterClipError
    from centerclip.search import Progress, VideoIndex, indexer

    indexer.COMMIT_SECONDS = 0.0
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    last = 0

    def tell(progress: Progress) -> None:
        nonlocal last
        if progress.finished > last:
            last = progress.finished
            pipe.send((progress.finished, progress.total))
            pipe.recv()

    try:
        report = VideoIndex(Path(folder), model=model).add(videos, on_progress=tell)
        pipe.send(report.added)
    except CenterClipError as error:
        pipe.send(f"{type(error).__name__}: {error}")
