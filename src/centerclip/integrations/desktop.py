"""The desktop of the person who runs this: its file manager, and its video player."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ..errors import CenterClipError
from ..files import is_address

REVEAL_SECONDS = 10.0  # for the file manager to answer
# Players that take the time to start at, by what is liked most for it; {} is the time in seconds.
PLAYERS = {
    "mpv": ["--force-window", "--start={:.2f}"],
    "vlc": ["--start-time={:.2f}"],
    "iina": ["--mpv-start={:.2f}"],
    "ffplay": ["-autoexit", "-ss", "{:.2f}"],
}
ELSEWHERE = {  # where players are that no shell finds
    "vlc": ["/Applications/VLC.app/Contents/MacOS/VLC", r"C:\Program Files\VideoLAN\VLC\vlc.exe"],
    "iina": ["/Applications/IINA.app/Contents/MacOS/iina-cli"],
    "mpv": ["/Applications/mpv.app/Contents/MacOS/mpv", r"C:\Program Files\mpv\mpv.exe"],
}


def has_desktop() -> bool:
    """Whether a window would open in front of the person who runs this."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def play(path: Path, start: float | None) -> str:
    """Open a video in a player, from a time in seconds on, and return the player's name.

    The name is empty where the system chooses what opens the file, from its start: where no player is known that takes
    a time, and for a photograph, whose ``start`` is None.

    Raises:
        CenterClipError: there is no desktop, or nothing that plays videos.
    """
    if is_address(path):
        raise CenterClipError(f"players do not open {path}; cut the moment out of it with --save FOLDER")
    if not has_desktop():
        raise CenterClipError(f"there is no desktop to play {path} on; leave out --open, or run this in a window of it")
    for name, options in PLAYERS.items() if start is not None else ():
        found = shutil.which(name) or next(filter(os.path.exists, ELSEWHERE.get(name, [])), None)
        if found is not None:
            return _start([found, *(option.format(start) for option in options), str(path)]) and name
    if sys.platform == "win32":
        os.startfile(path)
        return ""
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    if shutil.which(opener) is None:
        raise CenterClipError("nothing here plays videos: install mpv or VLC")
    _start([opener, str(path)])
    return ""


def _start(command: list[str]) -> str:
    """Start a program that outlives this one."""
    nothing = subprocess.DEVNULL
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    return command[0]


def reveal(path: Path) -> None:
    """Show a file in the file manager.

    Raises:
        CenterClipError: there is none.
    """
    if sys.platform == "win32":
        commands = [["explorer", f"/select,{path}"]]
    elif sys.platform == "darwin":
        commands = [["open", "-R", str(path)]]
    else:
        manager = "org.freedesktop.FileManager1"
        show = ["dbus-send", "--session", "--print-reply", f"--dest={manager}", "/" + manager.replace(".", "/")]
        show += [f"{manager}.ShowItems", f"array:string:{path.as_uri()}", "string:"]
        commands = [show, ["xdg-open", str(path.parent)]]  # the second cannot select the file
    for command in commands:
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(command, check=False, capture_output=True, timeout=REVEAL_SECONDS)
            if done.returncode == 0 or sys.platform == "win32":  # Explorer returns 1
                return
    raise CenterClipError("there is no file manager to show the file in")
