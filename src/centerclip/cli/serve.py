"""``centerclip serve``: a page in the browser to search with, and a REST API; ``centerclip mcp``: tools for agents."""

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_config_path
from typer import Option

from ..errors import CenterClipError
from .common import Device, IndexFolder

LOCAL = "127.0.0.1"
ALL_ADDRESSES = ("0.0.0.0", "::")
PORT = 8000
MIN_TOKEN_LENGTH = 8


Host = Annotated[str, Option(help="Address to listen on. 0.0.0.0 lets other machines in; they need the token.")]
Port = Annotated[
    int | None,
    Option(min=0, max=65535, help="Port; 0 takes any free one.", show_default=f"{PORT}, or the next free one"),
]
Token = Annotated[
    str | None,
    Option(
        envvar="CENTERCLIP_TOKEN",
        help="Secret that clients have to send.",
        show_default="none on this machine; the one of --token-file with another --host",
    ),
]
TokenFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="File that keeps the token; made with a new one if it is not there.",
        show_default="token in the user's config folder",
    ),
]
Cache = Annotated[
    Path | None,
    Option(metavar="DIR", help="Folder for thumbnails and converted video.", show_default="the user's cache folder"),
]


def serve(
    folder: IndexFolder = None,
    device: Device = None,
    host: Host = LOCAL,
    port: Port = None,
    token: Token = None,
    token_file: TokenFile = None,
    allow_folders: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Allow folders below this one to be added from the page, and videos removed from the index.",
            show_default="no folders",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        Option(metavar="URL", help="Let pages of this site use the API (CORS): https://example.org. Repeatable."),
    ] = None,
    root_path: Annotated[
        str, Option(metavar="PATH", help="Path under which a proxy shows the server: /clips.", show_default="/")
    ] = "",
    cache: Cache = None,
    open_page: Annotated[
        bool, Option("--open/--no-open", help="Open the page in the browser, if there is a desktop.")
    ] = True,
    verbose: Annotated[bool, Option("--verbose", help="Print what the server does.")] = False,
) -> None:
    """Open a page to search with: type a sentence, see the moments, play them. Ctrl-C stops."""
    for origin in allow_origin or ():
        if not re.fullmatch(r"https?://[^/*\s]+", origin):
            raise typer.BadParameter(f"write it as https://example.org, not {origin}", param_hint="--allow-origin")
    # NumPy's threads wait for the next product with the processor running, which the model needs. Before its import.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from ..integrations.desktop import has_desktop
    from ..search import VideoIndex
    from ..server import ServeSettings
    from ..server.library import index_command
    from ..server.run import bind, serve
    from ..server.settings import cache_folder

    token = _token(token, token_file, host)
    settings = ServeSettings(
        token=token,
        folders=allow_folders,
        origins=tuple(allow_origin or ()),
        root_path=f"/{root_path.strip('/')}".rstrip("/"),
        cache=cache or cache_folder(),
    )
    listening = bind(host, PORT if port is None else port, try_next=port is None)
    address = _address(host, listening.getsockname()[1], token)
    typer.echo(f"CenterCLIP is at {address}")
    if host in ALL_ADDRESSES:
        typer.echo(f"From other machines: {_address(_own_address(), listening.getsockname()[1], token)}")
        typer.echo("The connection is not encrypted: use a network that you trust, or an HTTPS proxy.", err=True)
    index = VideoIndex(folder, device=device)
    if index.model_version() is None:
        typer.echo(f"There is no index in {index.folder} yet. Make one with: {index_command(index.folder)}", err=True)
    if open_page and has_desktop():
        import webbrowser

        webbrowser.open(address)
    try:
        serve(index, settings, listening, log_level="info" if verbose else "warning")
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)


def mcp(
    folder: IndexFolder = None,
    device: Device = None,
    http: Annotated[bool, Option("--http", help="Listen on a port, instead of standard input and output.")] = False,
    host: Host = LOCAL,
    port: Port = None,
    token: Token = None,
    token_file: TokenFile = None,
    allow_write: Annotated[
        Path | None,
        Option(metavar="DIR", file_okay=False, help="Let agents save clips, in this folder.", show_default="read only"),
    ] = None,
    cache: Cache = None,
) -> None:
    """Let an agent search the videos: a server of the Model Context Protocol. docs/agents.md has the settings."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from ..integrations.mcp import make_mcp, mcp_app
    from ..search import VideoIndex
    from ..server import ServeSettings
    from ..server.middleware import MCP_PATH, is_this_machine
    from ..server.run import bind, http_server
    from ..server.settings import cache_folder

    settings = ServeSettings(token=_token(token, token_file, host) if http else None, cache=cache or cache_folder())
    index = VideoIndex(folder, device=device, create=False)
    clips = None if allow_write is None else allow_write.expanduser().absolute()
    server, service = make_mcp(index, settings, local=not http or is_this_machine(host), clips=clips)
    try:
        if not http:
            server.run()
            return
        listening = bind(host, PORT if port is None else port, try_next=port is None)
        typer.echo(f"MCP is at {_address(host, listening.getsockname()[1], None).rstrip('/')}{MCP_PATH}")
        if settings.token is not None:
            typer.echo(f"Clients have to send the header: Authorization: Bearer {settings.token}")
        http_server(mcp_app(server, service), settings).run(sockets=[listening])
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)


def _token(given: str | None, file: Path | None, host: str) -> str | None:
    """The token that clients have to send: the given one, or where other machines can connect the kept one."""
    from ..server.middleware import is_this_machine

    if given is not None and len(given) < MIN_TOKEN_LENGTH:
        raise typer.BadParameter(f"the token needs at least {MIN_TOKEN_LENGTH} characters", param_hint="--token")
    if given is None and (file is not None or not is_this_machine(host)):
        return _kept_token(file or user_config_path("centerclip", appauthor=False) / "token")
    return given


def _address(host: str, port: int, token: str | None) -> str:
    name = "localhost" if host in ALL_ADDRESSES else f"[{host}]" if ":" in host else host
    # After the hash, so that the browser sends it to nobody: the page reads it from there.
    return f"http://{name}:{port}/" + (f"#token={token}" if token else "")


def _own_address() -> str:
    """The address of this machine in its network, or else its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which way it would go
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _kept_token(file: Path) -> str:
    """The token in a file that only its owner can read; a new one the first time."""
    from ..files import write_atomic

    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)

        def write(path: Path) -> None:
            path.touch(0o600)
            path.write_text(secrets.token_urlsafe(18) + "\n")

        write_atomic(file, write)
    token = file.read_text().strip()
    if len(token) < MIN_TOKEN_LENGTH:
        raise CenterClipError(
            f"{file}: the token needs at least {MIN_TOKEN_LENGTH} characters; delete the file for a new one"
        )
    return token
