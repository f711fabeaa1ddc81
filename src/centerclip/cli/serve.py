"""``centerclip serve``: a page in the browser to search with, and a REST API; ``centerclip mcp``: tools for agents."""

import ipaddress
import re
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_config_path
from typer import Option

from ..errors import CenterClipError
from ..files import cache_folder
from .common import Device, IndexFolder

LOCAL = "127.0.0.1"
ALL_ADDRESSES = ("0.0.0.0", "::")
PORT = 8000
MIN_TOKEN_LENGTH = 8


Host = Annotated[str, Option(help="Address to listen on. 0.0.0.0 accepts other machines, which need the token.")]
Port = Annotated[
    int | None,
    Option(min=0, max=65535, help="Port; 0 takes any free one.", show_default=f"{PORT}, or the next free one"),
]
Token = Annotated[
    str | None,
    Option(
        envvar="CENTERCLIP_TOKEN",
        help="Secret that clients must send.",
        show_default="none on this machine; the one of --token-file with another --host",
    ),
]
TokenFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="File that holds the token; created with a new token if it does not exist.",
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
            help="Let the page add folders below this one, and remove videos from the index.",
            show_default="no folders",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        Option(metavar="URL", help="Let pages of this site use the API (CORS): https://example.org. Repeatable."),
    ] = None,
    root_path: Annotated[
        str, Option(metavar="PATH", help="Path below which a proxy serves this server: /clips.", show_default="/")
    ] = "",
    sharpen: Annotated[
        bool,
        Option(help="Index a moment more finely when it is played; --no-sharpen never changes the index."),
    ] = True,
    workers: Annotated[
        int,
        Option(
            min=1,
            help="Server processes, each with its own copy of the model. The limits on connections, requests, uploads "
            "and wrong tokens are shared; each process converts one piece at a time.",
        ),
    ] = 1,
    proxy: Annotated[
        list[str] | None,
        Option(
            metavar="ADDRESS",
            help="Trust X-Forwarded-For from this proxy: an address, or a network such as 10.0.0.0/8. Repeatable.",
        ),
    ] = None,
    cache: Cache = None,
    open_page: Annotated[
        bool, Option("--open/--no-open", help="Open the page in a browser, if there is a desktop.")
    ] = True,
    verbose: Annotated[bool, Option("--verbose", help="Log what the server does.")] = False,
) -> None:
    """Serve a page to search with, and a REST API.

    Type a sentence, see the moments, play them. Ctrl-C stops the server.
    """
    for origin in allow_origin or ():
        if not re.fullmatch(r"https?://[^/*\s]+", origin):
            raise typer.BadParameter(f"write it as https://example.org, not {origin}", param_hint="--allow-origin")
    for address in proxy or ():
        try:
            ipaddress.ip_network(address, strict=False)
        except ValueError as error:
            raise typer.BadParameter(f"write it as 10.0.0.1 or 10.0.0.0/8: {error}", param_hint="--proxy") from error
    if workers > 1 and allow_folders is not None:
        raise typer.BadParameter("--allow-folders works with one process only: leave out --workers")
    from ..integrations.desktop import has_desktop
    from ..search import VideoIndex
    from ..server import ServeSettings
    from ..server.library import index_command
    from ..server.run import bind, serve, serve_with_workers

    token = _token(token, token_file, host)
    settings = ServeSettings(
        token=token,
        folders=allow_folders,
        sharpen=sharpen,
        origins=tuple(allow_origin or ()),
        root_path=f"/{root_path.strip('/')}".rstrip("/"),
        cache=cache or cache_folder(),
        proxies=tuple(proxy or ()),
    )
    listening = bind(host, PORT if port is None else port, try_next=port is None)
    address = _address(host, listening.getsockname()[1], token)
    typer.echo(f"CenterCLIP is at {address}")
    if host in ALL_ADDRESSES:
        typer.echo(f"From other machines: {_address(_own_address(), listening.getsockname()[1], token)}")
        typer.echo("The connection is not encrypted: use a network that you trust, or an HTTPS proxy.", err=True)
    index = VideoIndex(folder, device=device)
    if index.model_version() is None:
        typer.echo(f"There is no index in {index.address} yet. Make one with: {index_command(index.address)}", err=True)
    if open_page and has_desktop():
        import webbrowser

        webbrowser.open(address)
    log_level = "info" if verbose else "warning"
    if workers > 1:
        index.close()
        serve_with_workers(folder, device, settings, listening, workers, log_level=log_level)
        return
    try:
        serve(index, settings, listening, log_level=log_level)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)


def mcp(
    folder: IndexFolder = None,
    device: Device = None,
    http: Annotated[bool, Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: Host = LOCAL,
    port: Port = None,
    token: Token = None,
    token_file: TokenFile = None,
    allow_write: Annotated[
        Path | None,
        Option(metavar="DIR", file_okay=False, help="Let agents save clips in this folder.", show_default="read only"),
    ] = None,
    cache: Cache = None,
) -> None:
    """Serve search tools to an agent (MCP).

    The Model Context Protocol, over standard input and output or HTTP. docs/agents.md has the settings for agents.
    """
    from ..integrations.mcp import make_mcp, mcp_app
    from ..search import VideoIndex
    from ..server import ServeSettings
    from ..server.middleware import MCP_PATH, is_this_machine
    from ..server.run import bind, http_server

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
