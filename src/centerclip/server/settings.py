"""What a server may do, and how much of the machine it may take."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

MEGABYTE = 2**20
GIGABYTE = 2**30


def cache_folder() -> Path:
    """Where thumbnails are kept: the user's cache folder."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "centerclip"


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server; the defaults are for one person on this machine.

    Attributes:
        token: what a client has to know; None lets in everyone who reaches the port.
        hosts: names by which the server may be called when there is no token, beside this machine's own. A page
            elsewhere on the web could otherwise have its name point to this machine, and read along.
        folders: folders below this one can be added from the page; None: no folder can.
        cache: folder for thumbnails and converted pieces of video.
        thumbnail_bytes: most bytes of thumbnails in the cache.
        piece_bytes: most bytes of converted video in the cache.
        upload_bytes: largest picture or clip that is taken for a search.
        upload_pixels: largest picture, and frame of a clip.
        upload_seconds: longest clip.
        body_seconds: how long an upload may be on its way.
        stall_seconds: how long a client may take nothing of what it asked for.
        connections: most connections at the same time.
        requests_per_client: most requests of one address at the same time.
    """

    token: str | None = None
    hosts: tuple[str, ...] = ()
    folders: Path | None = None
    cache: Path = field(default_factory=cache_folder)
    thumbnail_bytes: int = 512 * MEGABYTE
    piece_bytes: int = 2 * GIGABYTE
    upload_bytes: int = 64 * MEGABYTE
    upload_pixels: int = 64_000_000
    upload_seconds: float = 120.0
    body_seconds: float = 60.0
    stall_seconds: float = 120.0
    connections: int = 512
    requests_per_client: int = 128
