"""The web page and the REST API over an index."""

from .app import create_app
from .run import serve
from .settings import ServeSettings

__all__ = ["ServeSettings", "create_app", "serve"]
