"""What comes with CenterCLIP: a small model, trained on MiniVTT, and clips to search with it."""

from pathlib import Path

from .errors import ModelNotFound

BUNDLE = Path(__file__).resolve().parents[1] / "demo"


def demo_model() -> Path:
    """The folder of the bundled model. It knows drawn things in drawn places; it has never seen a photograph."""
    return _present(BUNDLE / "model")


def demo_clips() -> Path:
    """The folder of the bundled MiniVTT clips."""
    return _present(BUNDLE / "clips")


def _present(folder: Path) -> Path:
    if not folder.is_dir():
        raise ModelNotFound(f"{folder} is not there: this copy of CenterCLIP came without its demo; install it again")
    return folder
