"""``centerclip serve``: a page in the browser to search with, and the same as a REST API."""

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import IndexFolder

LOCAL = "127.0.0.1"
PORT = 8000
SHORTEST_TOKEN = 8


def serve(
    folder: IndexFolder = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 lets other machines in; they need the token.")
    ] = LOCAL,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port; 0 takes any free one.", show_default=f"{PORT}, or the next free one"
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CENTERCLIP_TOKEN",
            help="What clients have to know.",
            show_default="none on this machine; made up and printed with another --host",
        ),
    ] = None,
    allow_folders: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Folders below this one can be added from the page.",
            show_default="no folder can",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for thumbnails.", show_default="the user's cache folder"),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser, where there is one.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print what the server does.")] = False,
) -> None:
    """Open a page to search with: type a sentence, see the moments, play them. Ctrl-C stops."""
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise typer.BadParameter(f"the token needs at least {SHORTEST_TOKEN} letters", param_hint="--token")
    from ..search import VideoIndex
    from ..server import ServeSettings
    from ..server.middleware import is_this_machine
    from ..server.run import bind, serve
    from ..server.settings import cache_folder

    if token is None and not is_this_machine(host):
        token = secrets.token_urlsafe(18)
    settings = ServeSettings(token=token, folders=allow_folders, cache=cache or cache_folder())
    listening = bind(host, PORT if port is None else port, others=port is None)
    address = _address(host, listening.getsockname()[1], token)
    typer.echo(f"CenterCLIP is at {address}")
    if host in ("0.0.0.0", "::"):
        typer.echo(
            "Other machines: put the name of this one in place of localhost. There is no encryption: use it "
            "in a network that you trust, or behind a server that speaks HTTPS.",
            err=True,
        )
    index = VideoIndex(folder)
    if not (index.folder / "index.json").is_file():
        typer.echo(f"There is no index in {index.folder} yet. Make one with: centerclip index FOLDER", err=True)
    if open_page and _has_desktop():
        import webbrowser

        webbrowser.open(address)
    try:
        serve(index, settings, listening, log_level="info" if verbose else "warning")
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)


def _address(host: str, port: int, token: str | None) -> str:
    name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    # After the hash, so that it is sent to nobody: the page takes it from there.
    return f"http://{name}:{port}/" + (f"#token={token}" if token else "")


def _has_desktop() -> bool:
    """Whether a browser would open where the person sits."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
