"""What a server may do, and how much of the machine it may take."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from ..files import cache_folder

MEGABYTE = 2**20
GIGABYTE = 2**30


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server; the defaults are for one person on this machine."""

    token: str | None = None  # the secret that clients have to send; None lets in everyone who reaches the port
    # host names that are accepted without a token, beside this machine's own. Any other name is refused: a page on the
    # web could make its own name resolve to this machine and read the answers (DNS rebinding)
    hosts: tuple[str, ...] = ()
    # folders below this one can be added from the page, and videos removed from the index; None: neither
    folders: Path | None = None
    sharpen: bool = True  # moments that are looked at are indexed more finely, which writes to the index
    origins: tuple[str, ...] = ()  # other sites whose pages may use the API, such as ``https://example.org`` (CORS)
    # the path under which a proxy shows the server, such as ``/clips``; the proxy may strip it or not
    root_path: str = ""
    # addresses and networks of proxies, such as ``10.0.0.0/8``, whose X-Forwarded-For says who the client is
    proxies: tuple[str, ...] = ()
    cache: Path = field(default_factory=cache_folder)  # folder for thumbnails and converted video
    thumbnail_bytes: int = 512 * MEGABYTE  # size limit of the thumbnail cache
    piece_bytes: int = 2 * GIGABYTE  # size limit of the cache of converted video
    upload_bytes: int = 64 * MEGABYTE  # size limit of an image or clip to search with
    uploads: int = 16  # how many of them may be on the server's disk at once
    uploads_per_client: int = 4  # how many of one address
    upload_pixels: int = 64_000_000  # pixel limit of such an image, and of a frame of such a clip
    upload_seconds: float = 120.0  # length limit of such a clip
    body_seconds: float = 60.0  # how long a client may take to send a request's body
    stall_seconds: float = 120.0  # how long a client may stop reading a response before it is cut off
    connections: int = 512  # how many connections may be open at once
    requests_per_client: int = 128  # how many requests of one address may run at once
    guesses: int = 20  # wrong tokens of one address in a minute

    def shared_by(self, processes: int) -> "ServeSettings":
        """What each of several processes may do, so that together they do not more than this."""
        names = ("uploads", "uploads_per_client", "connections", "requests_per_client", "guesses")
        return replace(self, **{name: max(1, getattr(self, name) // processes) for name in names})
