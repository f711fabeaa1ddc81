"""CenterCLIP: find videos, and the moment inside them, with words."""

__version__ = "0.1.0"
