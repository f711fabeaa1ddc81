"""``python -m centerclip`` is the ``centerclip`` command."""

from .cli import main

main()
