"""What a run wrote down: one JSON object a line, the same for TensorBoard, and the learning curve as a picture."""

import json
import os
from pathlib import Path
from typing import Any

from .errors import TrainingError

LOG, CURVE = "log.jsonl", "curve.png"


class RunLog:
    """Appends to ``log.jsonl`` and to TensorBoard's files. A run that goes on drops what came after its checkpoint.

    Args:
        folder: of the run.
        step: steps that are done.
        epochs: epochs that are trained and validated.
    """

    def __init__(self, folder: Path, *, step: int, epochs: int) -> None:
        self.path = folder / LOG
        kept = [
            line
            for line in (read_log(folder) if step else [])
            if line["step"] <= step and not (line["event"] == "validation" and line["epoch"] > epochs)
        ]
        scratch = folder / f".{LOG}.writing"
        scratch.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        scratch.replace(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        self._board = _board(folder / "tensorboard", step)

    def write(self, event: str, *, step: int, **values: Any) -> None:
        """Add a line. Numbers, and numbers inside tables, also go to TensorBoard."""
        try:
            self._file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise TrainingError(f"the log {self.path} could not be written: {error.strerror}. Make room and give the "
                                "same command again") from error  # fmt: skip
        if self._board is not None:
            for name, value in _numbers(values):
                self._board.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """End the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log. A last line that a crash cut short is left out."""
    path = folder / LOG
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def draw_curve(folder: Path) -> Path | None:
    """Draw loss and recall over the steps into ``curve.png``; None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    lines = read_log(folder)
    steps = [line for line in lines if line["event"] == "train"]
    checks = [line for line in lines if line["event"] == "validation"]
    figure, loss_axes = plt.subplots(figsize=(7, 4), layout="constrained")
    loss_axes.plot(
        [line["step"] for line in steps], [line["loss"] for line in steps], color="0.6", label="training loss"
    )
    loss_axes.set_xlabel("step")
    loss_axes.set_ylabel("loss")
    recall_axes = loss_axes.twinx()
    for name, colour, marker in (("R1", "#0072b2", "o"), ("R5", "#d55e00", "s"), ("R10", "#009e73", "^")):
        recall_axes.plot(
            [line["step"] for line in checks],
            [line["t2v"][name] for line in checks],
            color=colour, marker=marker, markersize=4, label=f"{line_label(checks)} R@{name[1:]}",
        )  # fmt: skip
    recall_axes.set_ylabel("text-to-video recall, %")
    recall_axes.set_ylim(0, 100)
    handles = [*loss_axes.get_lines(), *recall_axes.get_lines()]
    loss_axes.legend(
        handles=handles, labels=[str(handle.get_label()) for handle in handles], loc="center right", fontsize=8
    )
    loss_axes.set_title(folder.resolve().name)
    scratch = folder / f".{CURVE}"
    figure.savefig(scratch, dpi=120, format="png")
    plt.close(figure)
    return scratch.replace(folder / CURVE)


def line_label(checks: list[dict[str, Any]]) -> str:
    """The split that the recall of a log is of."""
    return str(checks[-1]["split"]) if checks else "validation"


def _numbers(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((f"{prefix}{name}", float(value)))
    return found


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # the log has everything; TensorBoard is for those who installed it
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
