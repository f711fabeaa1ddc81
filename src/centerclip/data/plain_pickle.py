"""Opens a pickle that holds nothing but containers, strings and numbers: no class, no function, no code."""

import io
import pickle
from typing import Any, NoReturn

from .errors import AnnotationError


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
