"""Files of object storage, named by addresses such as ``s3://bucket/films/a.mp4`` and read through fsspec.

An :class:`Address` is a path that is asked for its size, opened and listed as those of the local disk are. Nothing is
copied to the disk: readers fetch the ranges of bytes that they need."""

import errno
import io
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CenterClipError, extras_named, first_line

BLOCK_BYTES = 4 * 2**20  # fetched at a time

if TYPE_CHECKING:
    LocalPath = Path
else:
    LocalPath = type(Path())  # before Python 3.12 only this one has descendants


class Address(LocalPath):
    """A file or folder of object storage. Methods raise OSError as those of other paths do."""

    def __str__(self) -> str:
        return super().__str__().replace("\\", "/").replace(":/", "://", 1)

    def as_uri(self) -> str:
        """The address."""
        return str(self)

    def absolute(self) -> "Address":
        """The address itself."""
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Kind, size and time of last change. After :func:`walk`, what that has found; see :meth:`stat_now`."""
        system, place = _system(self)
        seconds = 0
        with _as_os_error(self):
            facts = system.info(place)
            is_folder = facts["type"] == "directory"
            if not is_folder:
                with suppress(NotImplementedError):  # a protocol that does not say
                    seconds = int(system.modified(place).timestamp())
        kind = stat.S_IFDIR if is_folder else stat.S_IFREG
        status = (kind | 0o444, 0, 0, 1, 0, 0, facts.get("size") or 0, 0, seconds, 0)
        return os.stat_result(status, {"st_mtime_ns": seconds * 10**9})

    def stat_now(self) -> os.stat_result:
        """The same, asked of the storage itself."""
        system, place = _system(self)
        system.invalidate_cache(place)
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a file, or a file below it."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there are files below it."""
        return self.exists() and stat.S_ISDIR(self.stat().st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""
        return self.exists() and stat.S_ISREG(self.stat().st_mode)

    def iterdir(self) -> Generator["Address", None, None]:
        """The files and folders in this folder."""
        system, place = _system(self)
        with _as_os_error(self):
            names = system.ls(place, detail=False)
        return (self / name.rstrip("/").rpartition("/")[2] for name in names)

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """Open it for reading, ``"rb"``."""
        if mode != "rb":
            raise io.UnsupportedOperation(f"{self} can only be read")
        system, place = _system(self)
        with _as_os_error(self):
            return _Object(self, system.open(place, "rb", block_size=BLOCK_BYTES))

    def read_bytes(self) -> bytes:
        """All of it."""
        with self.open("rb") as file:
            return bytes(file.read())


def walk(root: Address, on_error: Callable[[OSError], None] | None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Folders below a root with the names of their folders and files, as ``os.walk`` gives them."""
    system, place = _system(root)
    system.invalidate_cache()  # what a listing of an earlier run has found

    def fail(error: Exception) -> None:
        if on_error is not None:
            on_error(_os_error(error, root))

    try:
        for folder, folders, names in system.walk(place, on_error=fail):
            yield f"{root}{folder.rstrip('/')[len(place.rstrip('/')) :]}", folders, names
    except Exception as error:
        fail(error)


class _Object(io.RawIOBase):
    """An open file, whose errors are OSErrors."""

    def __init__(self, address: Address, file: Any) -> None:
        self._address, self._file = address, file

    @property
    def name(self) -> str:
        return self._address.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _as_os_error(self._address):
            part = self._file.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _as_os_error(self._address):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _system(address: Address) -> tuple[Any, str]:
    """The file system of an address, and its place there."""
    import fsspec

    with extras_named():
        try:
            return fsspec.url_to_fs(str(address))
        except ImportError as error:  # it says so itself, but not what to type
            raise error.__cause__ or error from error


@contextmanager
def _as_os_error(address: Address) -> Iterator[None]:
    try:
        yield
    except CenterClipError:
        raise
    except Exception as error:  # whatever the package of the storage raises
        raise _os_error(error, address) from error


def _os_error(error: Exception, address: Address) -> OSError:
    """An error with a reason and the address, of a type that says what is wrong."""
    code = getattr(error, "errno", None)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such file in the storage", str(address))
    return OSError(code or errno.EIO, first_line(error) or type(error).__name__, str(address))
