"""Finds and reads annotation files, plain or gzipped. Their content is not trusted: no pickle runs code, no file fills
the memory, and whatever is malformed is an :class:`AnnotationError` that names the file."""

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

MAX_FILE_BYTES = 2**30  # unpacked: ten times the largest benchmark, small enough for any machine
Captions = dict[str, list[str]]  # video id -> its captions


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
        folders = " or ".join(map(str, self.folders))
        raise AbsentError(
            f"no annotation file {' or '.join(names)} (or .gz) in {folders}. Name its folder with --annotations."
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
        """The content of a pickle of plain containers, strings and numbers; anything else is refused."""
        path = self.find(*names)
        try:
            return _PlainUnpickler(io.BytesIO(read_bytes(path)), encoding="utf-8").load()
        except AnnotationError as error:
            raise AnnotationError(f"{path}: {error}") from error
        except Exception as error:  # a malformed pickle raises almost anything
            raise AnnotationError(f"{path} is not a readable pickle: {error}.") from error

    def rows(self, *names: str, columns: Iterable[str]) -> list[dict[str, str]]:
        """The rows of a CSV file with a header that has at least these columns."""
        return read_csv(self.find(*names), columns)


class _PlainUnpickler(pickle.Unpickler):
    """Containers, strings and numbers have opcodes of their own; everything else needs a class, and is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise AnnotationError(f"the pickle needs {module}.{name}; only lists, dicts, strings and numbers are allowed.")

    def persistent_load(self, identity: Any) -> NoReturn:
        raise AnnotationError("the pickle refers to objects outside itself, which is not allowed.")


def read_csv(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file, each a dict; missing columns are an error that names them."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        missing = sorted(set(columns) - set(reader.fieldnames or ()))
        if missing:
            raise AnnotationError(f"{path} has no column {', '.join(missing)}; its first line must name the columns.")
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
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise AnnotationError(f"{path} cannot be read: {error}.") from error
    if len(content) > MAX_FILE_BYTES:
        raise AnnotationError(f"{path} is larger than {MAX_FILE_BYTES >> 20:,} MB; no annotation file is that large.")
    return content


def captions_by_video(pairs: Iterable[tuple[str, str]]) -> Captions:
    """Captions of (video, caption) pairs by video, in order; white space is collapsed, blank captions are dropped.

    A video whose captions are all blank has an empty list.
    """
    captions: Captions = {}
    for video, caption in pairs:
        sentences = captions.setdefault(video, [])
        if plain := " ".join(caption.split()):
            sentences.append(plain)
    return captions


def select_videos(captions: Mapping[str, list[str]], videos: Iterable[str], *, source: str) -> Captions:
    """The captions of these videos, in the order of ``videos``; a video without any is an error."""
    selected: Captions = {}
    for video in videos:
        if not captions.get(video):
            raise AnnotationError(f"{source} has no caption for video {video}, which is in the list of the split.")
        selected[video] = captions[video]
    return selected


def require_list(value: Any, *, source: str) -> list[Any]:
    """The value, checked to be a list: a lone string would pass for a list of letters."""
    if not isinstance(value, list):
        raise AnnotationError(f"{source} must be a list of sentences, not {type(value).__name__}.")
    return value


def require_strings(value: Any, *, source: str) -> list[str]:
    """The value, checked to be a list of strings."""
    for member in require_list(value, source=source):
        if not isinstance(member, str):
            raise AnnotationError(f"{source} contains a {type(member).__name__} where a sentence is expected.")
    return list(value)
