"""What comes with CenterCLIP: a small model for real footage with clips to try it on, and one of MiniVTT with clips."""

from pathlib import Path

from ..errors import ModelNotFound

SMALL, DEMO = "small", "demo"  # the names of the bundled models
FOLDER = Path(__file__).resolve().parent
FILM = FOLDER / "film"  # clips of real pictures, with credits
BUNDLE = FOLDER / "demo"  # a model and clips of MiniVTT


def small_model() -> Path:
    """The folder of the small model for real footage: 8-bit weights for ONNX Runtime alone, made by recipes/small."""
    return _present(FOLDER / SMALL)


def film_clips() -> Path:
    """The folder of the bundled clips of photographs and old films; ``clips.csv`` in it says what each shows."""
    return _present(FILM)


def demo_model() -> Path:
    """The folder of the model of MiniVTT. It was trained on drawn scenes, never on photographs."""
    return _present(BUNDLE / "model")


def demo_clips() -> Path:
    """The folder of the bundled MiniVTT clips."""
    return _present(BUNDLE / "clips")


def resolve_model(name: str | Path) -> str | Path:
    """The folder of a bundled model for ``"small"`` and ``"demo"``; any other name is itself."""
    return {SMALL: small_model, DEMO: demo_model}[str(name)]() if name in (SMALL, DEMO) else name


def _present(folder: Path) -> Path:
    if not folder.exists():
        raise ModelNotFound(f"{folder} is missing: this copy of CenterCLIP is not whole; install it again")
    return folder
