"""``centerclip serve``: a page in the browser to search with, and the same as a REST API."""

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import IndexFolder

LOCAL = "127.0.0.1"
ALL_ADDRESSES = ("0.0.0.0", "::")
PORT = 8000
MIN_TOKEN_LENGTH = 8


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
            help="Secret that clients have to send.",
            show_default="none on this machine; generated and printed with another --host",
        ),
    ] = None,
    allow_folders: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Allow folders below this one to be added from the page.",
            show_default="no folders",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for thumbnails and converted video.", show_default="the user's cache folder"
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser, if there is a desktop.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print what the server does.")] = False,
) -> None:
    """Open a page to search with: type a sentence, see the moments, play them. Ctrl-C stops."""
    if token is not None and len(token) < MIN_TOKEN_LENGTH:
        raise typer.BadParameter(f"the token needs at least {MIN_TOKEN_LENGTH} characters", param_hint="--token")
    from ..search import VideoIndex
    from ..server import ServeSettings
    from ..server.middleware import is_this_machine
    from ..server.run import bind, serve
    from ..server.settings import cache_folder

    if token is None and not is_this_machine(host):
        token = secrets.token_urlsafe(18)
    settings = ServeSettings(token=token, folders=allow_folders, cache=cache or cache_folder())
    listening = bind(host, PORT if port is None else port, try_next=port is None)
    address = _address(host, listening.getsockname()[1], token)
    typer.echo(f"CenterCLIP is at {address}")
    if host in ALL_ADDRESSES:
        typer.echo(
            "From other machines, use this machine's name instead of localhost. The connection is not encrypted: "
            "use a network that you trust, or an HTTPS proxy.",
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
    name = "localhost" if host in ALL_ADDRESSES else f"[{host}]" if ":" in host else host
    # After the hash, so that the browser sends it to nobody: the page reads it from there.
    return f"http://{name}:{port}/" + (f"#token={token}" if token else "")


def _has_desktop() -> bool:
    """Whether a browser would open in front of the person who runs this."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
