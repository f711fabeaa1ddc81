"""Files and folders: finding videos, naming a file by its content, and writing whole files or none."""

import errno
import glob
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

LOCKED_BYTE = 2**20  # Windows locks bytes, and nobody else can read those: lock one behind the end of the file
PARTIAL = ".part"  # in the name of a file that is not whole yet
IGNORE_FILE = ".centerclipignore"
HASHED_BYTES = 2**20  # at a time: little enough to stop soon on a slow disk
# What a folder is searched for; a file that is named may be called anything.
VIDEO_SUFFIXES = frozenset(
    {".3g2", ".3gp", ".asf", ".avi", ".divx", ".dv", ".f4v", ".flv", ".gif", ".h264", ".hevc", ".ivf", ".m2ts", ".m2v"}
    | {".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut", ".ogg", ".ogv", ".rm", ".rmvb", ".ts"}
    | {".vob", ".webm", ".wmv", ".wtv", ".y4m"}
)
PHOTO_SUFFIXES = frozenset({".heic", ".heif", ".jpeg", ".jpg", ".png", ".webp"})
# Pictures that media centres and phones put beside films: they would be found in the place of the film.
# Of object storage that fsspec reads; of others no name is taken for an address.
ADDRESS = re.compile(r"(?:s3a?|gc?s|az|abfss?|memory)://")
ARTWORK = frozenset({"albumart", "backdrop", "banner", "cover", "fanart", "folder", "poster", "thumb", "thumbnail"})


def cache_folder() -> Path:
    """Where what can be made again is kept: ``$CENTERCLIP_CACHE``, else the user's cache."""
    from platformdirs import user_cache_path

    named = os.environ.get("CENTERCLIP_CACHE")
    return Path(named).expanduser() if named else user_cache_path("centerclip", appauthor=False)


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a file or folder of object storage."""
    return ADDRESS.match(os.fspath(path)) is not None


def path_of(path: str | os.PathLike[str]) -> Path:
    """A path, or an :class:`~centerclip.storage.Address` where it is one."""
    if is_address(path):
        from .storage import Address

        return Address(path)
    return Path(path)


def find_videos(
    *roots: Path,
    skip: Path | None = None,
    ignore: Collection[str] = (),
    on_error: Callable[[OSError], None] | None = None,
    suffixes: Collection[str] = VIDEO_SUFFIXES,
) -> Iterator[Path]:
    """The video files below folders, and files that are named themselves: each once, in a fixed order.

    Hidden files and folders are left out, and what a file ``.centerclipignore`` in a folder lists, one pattern a line,
    for this folder and those below: ``*.gif`` is about names, ``raw/*.mov`` about paths from there. Linked folders are
    followed, since films often live on another disk, but each real folder is entered once.

    Args:
        roots: folders and files.
        skip: a folder not to enter.
        ignore: such patterns for all folders, and whole paths.
        on_error: called for a folder that cannot be listed, which is then left out.
        suffixes: what to look for. Photographs that only stand for a film are left out: those with the name of a
            video beside them, and those called poster, cover, folder and so on, alone or after a hyphen.
    """
    entered = {os.path.realpath(skip)} if skip else set()
    found: set[Path] = set()
    for root in roots:
        try:
            is_folder = root.is_dir()
        except OSError as error:  # a storage that is away
            if on_error is not None:
                on_error(error)
            continue
        for path in _below(root, entered, ignore, on_error, suffixes) if is_folder else [root]:
            if path not in found:
                found.add(path)
                yield path


def _below(
    root: Path,
    entered: set[str],
    ignore: Collection[str],
    on_error: Callable[[OSError], None] | None,
    suffixes: Collection[str],
) -> Iterator[Path]:
    rules: dict[str, list[str]] = {}  # by folder, each as a pattern of a whole path

    def is_shown(folder: str, name: str) -> bool:
        path = Path(folder, name).as_posix()
        return not name.startswith(".") and not any(fnmatchcase(path, rule) for rule in rules[folder])

    is_remote = is_address(root)
    if is_remote:
        from .storage import Address, walk

        walked = walk(Address(root), on_error)
    else:
        walked = os.walk(root, followlinks=True, onerror=on_error)
    for folder, subfolders, names in walked:
        place, real = path_of(folder), folder if is_remote else os.path.realpath(folder)
        if real in entered:
            subfolders.clear()
            continue
        entered.add(real)
        rules[folder] = rules.get(str(place.parent)) or _rules(str(root), ignore)
        if IGNORE_FILE in names:
            with suppress(OSError):
                lines = (place / IGNORE_FILE).read_bytes().decode(errors="surrogateescape").splitlines()
                rules[folder] = rules[folder] + _rules(folder, lines)
        subfolders[:] = sorted(name for name in subfolders if is_shown(folder, name))
        films = {Path(name).stem.lower() for name in names if Path(name).suffix.lower() in VIDEO_SUFFIXES}
        for name in sorted(names):
            stem = Path(name).stem.lower()
            if is_photo(name) and (stem in films or stem.rpartition("-")[2] in ARTWORK):
                continue
            if Path(name).suffix.lower() in suffixes and is_shown(folder, name):
                yield place / name


def is_photo(path: str | os.PathLike[str]) -> bool:
    """Whether a file is called like a photograph."""
    return Path(path).suffix.lower() in PHOTO_SUFFIXES


def _rules(folder: str, patterns: Iterable[str]) -> list[str]:
    """Patterns of names, and of paths from a folder on, as patterns of whole paths."""
    base = glob.escape(Path(folder).as_posix())
    named = [line.strip().rstrip("/") for line in patterns if not line.startswith("#")]
    paths = (Path(name) if is_address(name) else Path(base, name) for name in named if "/" in name)
    return [path.as_posix() for path in paths] + [f"{base}*/{name}" for name in named if name and "/" not in name]


def valid_text(name: str | Path) -> str:
    """A file name as valid Unicode: names may hold any bytes."""
    return str(name).encode(errors="surrogateescape").decode(errors="replace")


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def content_id(path: Path, stopped: Callable[[], bool] = lambda: False) -> str:
    """Which video a file holds, whatever it is called: a hash of all its bytes, 32 hexadecimal digits. Raises OSError.

    A hash of samples would be quicker for films, but two files that differ in a part that was not looked at would pass
    for one, and reading a file costs little beside decoding it. Where ``stopped`` says so, it ends halfway.
    """
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        while part := file.read(HASHED_BYTES):
            if stopped():
                raise InterruptedError(errno.EINTR, "stopped", str(path))
            digest.update(part)
    return digest.hexdigest()


def write_atomic(path: Path, content: str | bytes | Callable[[Path], object], *, durable: bool = True) -> Path:
    """Write a file so that it is there whole or not at all, whatever happens meanwhile; an earlier one is replaced.

    Args:
        path: the file; its folder must exist.
        content: text, bytes, or a function that writes the file it is given, beside ``path`` and with its suffix.
        durable: also survive a power cut: the disk has it before this returns. Not needed for what can be made again.
    """
    partial = path.with_name(f".{path.stem[:100]}-{secrets.token_hex(4)}{PARTIAL}{path.suffix}")
    try:
        if callable(content):
            content(partial)
        elif isinstance(content, bytes):
            partial.write_bytes(content)
        else:
            partial.write_bytes(content.encode("utf-8", "surrogateescape"))
        if durable:
            move_into_place(partial, path)
        else:
            partial.replace(path)
    except OSError as error:
        if error.filename == str(partial):  # nobody knows it by this name
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return path


def move_into_place(source: Path, target: Path) -> Path:
    """Rename a whole file or folder; the disk has its content before its name, and both before this returns."""
    paths = [source, *source.rglob("*")] if source.is_dir() else [source]
    for path in reversed(paths):
        _sync(path)
    source.replace(target)
    _sync(target.parent)
    return target


def _sync(path: Path) -> None:
    if os.name != "posix" and path.is_dir():  # Windows cannot open folders, and writes their entries itself
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """A folder beside a target for files that are not whole yet, to be moved from there; gone at the end."""
    name = f".{target.name[:100]}-"
    with TemporaryDirectory(dir=target.parent, prefix=name, suffix=PARTIAL, ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(target.parent.stat().st_mode & 0o777)  # whoever may read what is beside it may read it
        yield Path(scratch)


def remove_partial(folder: Path) -> None:
    """Remove what killed processes left of files that :func:`write_atomic` was writing, also in sub-folders."""
    for partial in folder.rglob(f".*{PARTIAL}*"):
        partial.unlink(missing_ok=True)


def lock_file(file: IO[Any], *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file, until it is closed; False when another one has it and ``wait`` is not set.

    Some network file systems have no locks: there nobody is kept out.
    """
    try:
        import fcntl
    except ImportError:
        import msvcrt

        kind = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK  # type: ignore[attr-defined]
        try:
            file.seek(LOCKED_BYTE)
            msvcrt.locking(file.fileno(), kind, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    # flock, not a record lock: the server looks from the process that writes, and closing any file of a process
    # gives up all its record locks.
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
