"""The web page and the REST API over an index. Nothing heavy is imported before an app is made."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .settings import ServeSettings

if TYPE_CHECKING:
    from .app import create_app
    from .run import serve

_MODULE_OF = {"create_app": ".app", "serve": ".run"}
__all__ = ["ServeSettings", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    """Import the app and the server on first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name], __name__), name)
