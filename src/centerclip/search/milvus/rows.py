"""Rows as the server keeps them, and conditions on them."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from ..roots import from_stored, to_stored

MAX_ROWS = 16_384  # that a server gives in one answer, or searches for
PAGE_ROWS = 1_000  # read or written at a time
MAX_BYTES, MAX_TEXT = 65_535, 20_000  # of a text in Milvus, and letters of a line
FOREVER = 2**62  # the generation that never comes
NOTHING = -1e15  # a number that the file does not say
ABOUT = ("duration", "recorded", "latitude", "longitude")  # numbers of a video that filters look at
FILE_COLUMNS = ("video", "key", "size", "modified", "content", "failed")
FULL_TEXT, INFIX = (2, 5), (2, 4)  # versions of the server from which on words, and parts of names, can be searched
DRAWS = 2**31
# Bytes of a name that are no text as letters that nobody uses: VARCHAR takes valid text only.
TO_TEXT = {0xDC00 + byte: 0xEF00 + byte for byte in range(0x80, 0x100)}
FROM_TEXT = {letter: surrogate for surrogate, letter in TO_TEXT.items()}
Row = dict[str, Any]
Value = TypeVar("Value")


def to_key(path: str) -> str:
    """A path as the server keeps it: valid text, with "/" between its parts."""
    return os.fsdecode(to_stored(path)).translate(TO_TEXT)


def from_key(key: str) -> str:
    """The path of a key."""
    return from_stored(os.fsencode(key.translate(FROM_TEXT)))


def drawn(id: str) -> int:
    """A number from 0 to ``DRAWS`` that is as good as drawn."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=4).digest(), "little") % DRAWS


def stamp_of(head: Row) -> tuple[int, int, tuple[str, ...]]:
    """What a view of a head depends on."""
    return head["generation"], head["since"], tuple(head["settings"]["roots"])


def in_parts(each: Iterable[Value]) -> Iterator[list[Value]]:
    """Some at a time."""
    rest = iter(each)
    while some := list(islice(rest, PAGE_ROWS)):
        yield some


def quoted(text: str) -> str:
    """Text in a condition."""
    return json.dumps(text, ensure_ascii=False)


def listed(texts: Iterable[str]) -> str:
    """Texts in a condition."""
    return f"[{', '.join(map(quoted, texts))}]"


def key_below(folder: str) -> str:
    """A condition: keys of a folder and of all below it."""
    base = folder.rstrip("/")
    return f"(key == {quoted(folder)} or (key >= {quoted(base + '/')} and key < {quoted(base + '0')}))"  # 0 follows /


def in_range(column: str, low: float | None, high: float | None, below: str = "<") -> list[str]:
    """Conditions on a column; none without a bound."""
    return ([] if low is None else [f"{column} >= {low}"]) + ([] if high is None else [f"{column} {below} {high}"])


def like(pattern: str) -> list[str]:
    """A condition that a pattern of names implies: the longest part of it that stands for itself."""
    part = max(re.split(r"\[.*?\]|[^\w .-]|_", pattern.casefold()), key=len)
    return [f'label like "%{part}%"'] if part else []
