"""What a server may do, and how much of the machine it may take."""

from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_cache_path

MEGABYTE = 2**20
GIGABYTE = 2**30


def cache_folder() -> Path:
    """The user's cache folder, where thumbnails and converted video are kept by default."""
    return user_cache_path("centerclip", appauthor=False, opinion=False)


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server; the defaults are for one person on this machine.

    Attributes:
        token: the secret that clients have to send; None lets in everyone who reaches the port.
        hosts: host names that are accepted without a token, beside this machine's own. Any other name is refused:
            a page on the web could make its own name resolve to this machine and read the answers (DNS rebinding).
        folders: folders below this one can be added from the page, and videos removed from the index; None: neither.
        origins: other sites whose pages may use the API, such as ``https://example.org`` (CORS).
        root_path: the path under which a proxy shows the server, such as ``/clips``; the proxy may strip it or not.
        cache: folder for thumbnails and converted video.
        thumbnail_bytes: size limit of the thumbnail cache.
        piece_bytes: size limit of the cache of converted video.
        upload_bytes: size limit of an image or clip to search with.
        upload_pixels: pixel limit of such an image, and of a frame of such a clip.
        upload_seconds: length limit of such a clip.
        body_seconds: how long a client may take to send a request's body.
        stall_seconds: how long a client may stop reading a response before it is cut off.
        connections: how many connections may be open at once.
        requests_per_client: how many requests of one address may run at once.
    """

    token: str | None = None
    hosts: tuple[str, ...] = ()
    folders: Path | None = None
    origins: tuple[str, ...] = ()
    root_path: str = ""
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
