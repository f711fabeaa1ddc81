"""How figures look: readable in print, in grey and by colour-blind people; the same bytes for the same numbers."""

from pathlib import Path
from textwrap import fill
from typing import Any

from ..evaluation.whole_files import write_whole

# Okabe and Ito's colours, told apart with any kind of colour vision; markers tell them apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DPI = 150  # of pictures; print them from the SVG


def new_figure(*, width: float, height: float) -> Any:
    """An empty matplotlib figure of ``width`` x ``height`` inches, without a window."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "centerclip"  # ids inside the SVG do not change from run to run
    rcParams["svg.fonttype"] = "none"
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, *, caption: str = "") -> list[Path]:
    """Write ``path`` as PNG and as SVG, each whole or not at all, with a caption below."""
    if caption:
        inches = figure.get_size_inches()[0]
        figure.text(0.01, -0.02, fill(caption, round(inches * 15)), fontsize=7, va="top", color="#444444")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in ("png", "svg"):
        target = path.with_name(f"{path.name}.{kind}")
        options: dict[str, Any] = {"format": kind, "dpi": DPI, "bbox_inches": "tight"}
        options["metadata"] = {"Date": None} if kind == "svg" else {"Software": None}
        write_whole(target, lambda scratch, options=options: figure.savefig(scratch, **options))  # type: ignore[misc]
        written.append(target)
    return written
