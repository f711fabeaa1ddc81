"""Opens a pickle that holds nothing but containers, strings and numbers: no class, no function, no code."""

import csv
import gzip
import io
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..errors import AbsentError, AnnotationError


class _PlainUnpickler(pickle.Unpickler):
    """Containers, strings and numbers have opcodes of their own; everything else asks for a class, and is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise AnnotationError(f"the pickle asks for {module}.{name}; only lists, dicts and strings are opened.")

    def persistent_load(self, identity: Any) -> NoReturn:
        raise AnnotationError(
            "the pickle refers to something outside itself; only lists, dicts and strings are opened."
        )


def load_plain(content: bytes, source: str) -> Any:
    """The value of a pickle of plain containers. ``source`` names it in errors."""
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="utf-8").load()
    except AnnotationError as error:
        raise AnnotationError(f"{source}: {error}") from error
    # A malformed pickle raises almost anything.
    except Exception as error:
        raise AnnotationError(f"{source} is not a readable pickle: {error}.") from error


MOST_BYTES = 2**30  # of one file, unpacked: ten times the largest benchmark, small enough for any machine
Captions = dict[str, list[str]]  # video id -> its sentences


@dataclass(frozen=True)
class AnnotationFiles:
    """The annotation files of a data set: looked for in ``folders``, in that order, by their published names."""

    folders: tuple[Path, ...]

    def find(self, *names: str) -> Path:
        """The first of ``names`` that exists, as it is or with ``.gz``."""
        for folder in self.folders:
            for name in names:
                for path in (folder / name, folder / f"{name}.gz"):
                    if path.is_file():
                        return path
        where = " or ".join(map(str, self.folders))
        raise AbsentError(
            f"no annotation file {' or '.join(names)} (or .gz) in {where}. Name its folder with --annotations."
        )

    def json(self, *names: str) -> Any:
        """The content of a JSON file."""
        path = self.find(*names)
        try:
            return json.loads(read_text(path))
        except (json.JSONDecodeError, RecursionError) as error:
            raise AnnotationError(f"{path} is not JSON: {error}.") from error

    def lines(self, *names: str) -> list[str]:
        """The lines of a text file that are not blank."""
        text = read_text(self.find(*names))
        return [line.strip() for line in text.split("\n") if line.strip()]

    def pickle(self, *names: str) -> Any:
        """The content of a pickle of plain containers and strings; nothing else is opened."""
        path = self.find(*names)
        return load_plain(read_bytes(path), str(path))

    def rows(self, *names: str, columns: Iterable[str]) -> list[dict[str, str]]:
        """The rows of a CSV file with a header that has at least these columns."""
        return read_csv(self.find(*names), columns)


def read_csv(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file, each a dict; an error names absent columns."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        absent = sorted(set(columns) - set(reader.fieldnames or ()))
        if absent:
            raise AnnotationError(f"{path} has no column {', '.join(absent)}; its first line must name the columns.")
        return [{key: value or "" for key, value in row.items() if key is not None} for row in reader]
    except csv.Error as error:
        raise AnnotationError(f"{path}, line {reader.line_num}: {error}.") from error


def read_text(path: Path) -> str:
    """The text of a file, plain or gzipped; a byte order mark is dropped."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnnotationError(f"{path} is not UTF-8 text: {error}.") from error


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked when they are gzip, whatever the file's name says."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise AnnotationError(f"{path} cannot be read: {error}.") from error
    if len(content) > MOST_BYTES:
        raise AnnotationError(f"{path} holds more than {MOST_BYTES >> 20:,} MB; no annotation file is that large.")
    return content


def gather(pairs: Iterable[tuple[str, str]]) -> Captions:
    """Captions by video, in order of appearance; white space is made plain, blank captions are left out."""
    captions: Captions = {}
    for video, caption in pairs:
        if plain := " ".join(caption.split()):
            captions.setdefault(video, []).append(plain)
    return captions


def pick(captions: Mapping[str, list[str]], videos: Iterable[str], *, source: str) -> Captions:
    """The captions of these videos, in the order of ``videos``; a video without any is an error."""
    chosen: Captions = {}
    for video in videos:
        if video not in captions:
            raise AnnotationError(f"{source} has no caption for video {video}, which the split names.")
        chosen[video] = captions[video]
    return chosen


def members(value: Any, *, source: str) -> list[Any]:
    """The value, checked to be a list: a lone string would pass for a list of letters."""
    if not isinstance(value, list):
        raise AnnotationError(f"{source} must be a list of sentences, not {type(value).__name__}.")
    return value


def strings(value: Any, *, source: str) -> list[str]:
    """The value, checked to be a list of strings."""
    for member in members(value, source=source):
        if not isinstance(member, str):
            raise AnnotationError(f"{source} holds {type(member).__name__} where a sentence must stand.")
    return list(value)
