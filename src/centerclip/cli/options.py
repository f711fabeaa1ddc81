"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

IndexFolder = Annotated[
    Path | None,
    typer.Option(
        "--index",
        envvar="CENTERCLIP_INDEX",
        help="Folder of the index.",
        show_default="the user's data folder",
    ),
]
