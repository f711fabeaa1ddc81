"""The folder of a generated data set: whose it is, what it was made with, and its annotation files."""

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import DataError

INFO = "minivtt.json"
CAPTIONS_FILE = "captions.csv"
VERSION = 1  # of what the generator draws and writes; a change of it makes other files
FREE = ("clips", "complete")  # may differ from one run to the next in the same folder


def claim(folder: Path, setting: dict[str, Any], *, force: bool) -> None:
    """Take a folder for this setting: a new one, or one in which an earlier run of the same setting stopped.

    With ``force`` the files that an earlier run of any setting left are removed first; other files never are.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder.")
    earlier = read_info(folder)
    if earlier is None:
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder} holds other files; choose a folder that is new or empty.")
    elif force:
        _remove_made(folder)
    else:
        differs = [key for key in setting if key not in FREE and earlier.get(key) != setting[key]]
        if differs:
            told = ", ".join(f"{key} {earlier.get(key)} and not {setting[key]}" for key in differs)
            raise DataError(f"{folder} was made with {told}. Choose another folder, or start it anew with --force.")
        fewer = [split for split, count in setting["clips"].items() if earlier["clips"].get(split, 0) > count]
        if fewer:
            raise DataError(
                f"{folder} is meant to hold {sum(earlier['clips'].values()):,} clips. Ask for as many or more, choose "
                "another folder, or start it anew with --force."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_info(folder, setting | {"complete": False})
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror}.") from error


def read_info(folder: Path) -> dict[str, Any] | None:
    """How a folder was made; None when this generator did not make it."""
    path = folder / INFO
    if not path.is_file():
        return None
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(info["clips"], dict):
            raise TypeError("clips are not counted by split")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); remove the folder {folder}.") from error
    return dict(info)


def write_info(folder: Path, info: dict[str, Any]) -> None:
    """Say how the folder was made."""
    write_whole(folder / INFO, json.dumps(info, indent=2) + "\n")


def write_captions(folder: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write (video, caption, split) in the ``folder`` format."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("video", "caption", "split"))
    table.writerows(rows)
    write_whole(folder / CAPTIONS_FILE, text.getvalue())


def write_whole(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)


def _remove_made(folder: Path) -> None:
    from .events import EVENTS_FILE

    for made in ("videos", "pictures"):
        for path in (folder / made).glob("*.mp4"):
            path.unlink()
    for name in (CAPTIONS_FILE, EVENTS_FILE, INFO):
        (folder / name).unlink(missing_ok=True)
