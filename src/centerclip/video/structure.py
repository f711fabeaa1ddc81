"""What the first bytes of a file say: which container it is, and how long it claims to be.

FFmpeg answers "invalid data" alike for a text file and for half a download. The outermost boxes of the common
containers tell them apart, and show a missing tail that FFmpeg would pass over in silence.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MP4_BOXES = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx", b"uuid", b"udta"}
EBML_HEADER, MATROSKA_SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
UNKNOWN_RIFF_LENGTH = 0xFFFFFFFF  # written by recorders that were still running
MAX_BOXES = 100_000  # a fragmented file of a day has about this many; a hostile one could have billions


@dataclass(frozen=True)
class Structure:
    """The outermost structure of a file.

    Attributes:
        container: "mp4", "matroska", "riff", or None when the file starts with none of these.
        declared: bytes that the file says it has; at most ``size`` for a whole file.
        size: bytes that it has.
        indexed: False for an MP4 without the box that says where its frames are, which is often written last.
    """

    container: str | None
    declared: int
    size: int
    indexed: bool = True

    @property
    def missing(self) -> float:
        """Share of the declared bytes that are not there, in ``[0, 1)``."""
        return max(0, self.declared - self.size) / max(self.declared, 1)


def read_structure(path: str | Path) -> Structure:
    """Look at the outermost boxes of a file; reads a few bytes of each."""
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(12)
        if head[4:8] in MP4_BOXES:
            declared, indexed = _walk_mp4(file, size)
            return Structure("mp4", declared, size, indexed)
        if head[:4] == EBML_HEADER:
            return Structure("matroska", _matroska_end(file, size), size)
        if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
            length = int.from_bytes(head[4:8], "little")
            return Structure("riff", size if length == UNKNOWN_RIFF_LENGTH else 8 + length, size)
        return Structure(None, size, size)


def _walk_mp4(file: BinaryIO, size: int) -> tuple[int, bool]:
    """Follow the boxes ``[length, name, ...]``: the end of the last one, and whether one of them is the index."""
    position, indexed = 0, False
    for _ in range(MAX_BOXES):
        file.seek(position)
        head = file.read(16)
        if len(head) < 8:
            break
        indexed |= head[4:8] == b"moov"
        length = int.from_bytes(head[:4], "big")
        if length == 1 and len(head) == 16:
            length = struct.unpack(">Q", head[8:])[0]
        if length == 0:  # "until the end of the file"
            return size, indexed
        if length < 8 or not head[4:8].isascii():
            return size, indexed  # junk after the last box
        position += length
        if position >= size:
            break
    return position, indexed


def _matroska_end(file: BinaryIO, size: int) -> int:
    """The end of the segment, which holds everything but the header; ``size`` when it is written as unknown."""
    file.seek(len(EBML_HEADER))
    header_length = _matroska_length(file)
    if header_length is None or header_length > size:
        return size
    file.seek(header_length, 1)
    if file.read(4) != MATROSKA_SEGMENT:
        return size
    length = _matroska_length(file)
    return size if length is None else file.tell() + length


def _matroska_length(file: BinaryIO) -> int | None:
    """Read a length whose leading zero bits say how many bytes it takes; None when it is written as unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    width = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (0xFF >> width)]) + file.read(width - 1), "big")
    return None if value == (1 << 7 * width) - 1 else value
