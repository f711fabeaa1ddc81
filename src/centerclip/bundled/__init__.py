"""What comes with CenterCLIP: a small model, trained on MiniVTT, and clips to search with it."""

from pathlib import Path

from ..errors import ModelNotFound

DEMO = "demo"  # the name of the bundled model
BUNDLE = Path(__file__).resolve().parent / "demo"
FILM = Path(__file__).resolve().parent / "film"  # clips of real pictures, with credits


def demo_model() -> Path:
    """The folder of the bundled model. It was trained on drawn scenes, never on photographs."""
    return _present(BUNDLE / "model")


def demo_clips() -> Path:
    """The folder of the bundled MiniVTT clips."""
    return _present(BUNDLE / "clips")


def resolve_model(name: str | Path) -> str | Path:
    """The folder of the bundled model for ``"demo"``; any other name is itself."""
    return demo_model() if name == DEMO else name


def _present(folder: Path) -> Path:
    if not folder.is_dir():
        raise ModelNotFound(f"{folder} is missing: this copy of CenterCLIP has no demo; install CenterCLIP again")
    return folder
