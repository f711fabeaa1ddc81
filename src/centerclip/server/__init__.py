"""The web page and the REST API over an index. Nothing heavy is imported before an app is made."""

from typing import TYPE_CHECKING, Any

from .settings import ServeSettings

if TYPE_CHECKING:
    from .app import create_app
    from .run import serve


__all__ = ["ServeSettings", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    """Import the app and the server on first use."""
    if name == "create_app":
        from .app import create_app

        return create_app
    if name == "serve":
        from .run import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
