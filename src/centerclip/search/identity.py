"""Which video a file holds, whatever it is called: a hash of all its bytes.

Of a file whose path, size and time are as they were, nothing is read. In any other case the whole file is: a hash of
samples would be quicker for films, but two files that differ in a part that was not looked at would pass for one, and
reading a file costs little beside decoding it.
"""

import hashlib
from pathlib import Path


def content_id(path: Path) -> str:
    """The hash of a file's content, 32 hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
