"""Clustering without training: recall of a model that never saw clustering, for each setting, against none.

    python benchmarks/training_free.py MODEL --root DATA --settings B6-4,128 means:B6-4,128 means:B6-4,256

DATA is a folder with videos and a captions.csv (video, caption, split). Results are kept in --output and not repeated;
differences come with the 95 % interval of a paired bootstrap over videos.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from centerclip import CenterCLIP
from centerclip.data import load
from centerclip.reports.training_free import Trial, run_settings

SETTINGS = (
    "B6-4,64 kmedoids[proportional]:B6-4,64 B6-4,128 kmedoids[proportional]:B6-4,128 means:B6-4,128 tome:B6-4,128 "
    "dpcknn:B6-4,128 kkz:B6-4,128 attention:B6-4,128 sampling:B6-4,128 random:B6-4,128 B6-4,256 "
    "kmedoids[proportional]:B6-4,256"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, a name on the hub, or demo")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--rule", choices=("mean", "renormalise"), help="similarity rule; the model's own by default")
    parser.add_argument("--settings", nargs="+", default=SETTINGS.split())
    parser.add_argument("--output", type=Path, default=Path("runs/training-free"))
    given = parser.parse_args()
    model = CenterCLIP.from_pretrained(given.model, clustering="none", frames=given.frames, similarity_rule=given.rule)
    benchmark = load("folder", given.root, given.split)

    def progress(done: int, total: int) -> None:
        print(f"\r{done} of {total} videos ", end="\n" if done == total else "", file=sys.stderr, flush=True)

    show(run_settings(model, benchmark, given.settings, given.output, on_progress=progress))


def show(trials: list[Trial]) -> None:
    """One line a setting; differences against none in brackets, a star where their interval leaves out zero."""
    table = Table(title=trials[0].result.label(), title_justify="left")
    for column in ("setting", "tokens left", "R@1", "difference", "R@5", "R@10", "v2t R@1", "difference", "cosine"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    for trial in trials:
        t2v, v2t = trial.result.metrics["t2v"], trial.result.metrics["v2t"]
        table.add_row(
            escape(trial.setting), f"{100 * trial.tokens:.0f} %", f"{t2v['R1']:.1f}", _difference(trial, "t2v"),
            f"{t2v['R5']:.1f}", f"{t2v['R10']:.1f}", f"{v2t['R1']:.1f}", _difference(trial, "v2t"),
            f"{trial.closeness:.3f}",
        )  # fmt: skip
    Console(width=140).print(table)
    print("Difference of R@1 against none, with its 95 % interval over videos; * where it leaves out zero.")
    print("Cosine: of the videos' vectors to those without clustering, the mean.")


def _difference(trial: Trial, direction: str) -> str:
    found = trial.against_none
    low, high = found.intervals[direction]["R1"]
    star = "*" if found.clear(direction, "R1") else " "
    return f"{found.difference[direction]['R1']:+.1f} [{low:+.1f}, {high:+.1f}]{star}"


if __name__ == "__main__":
    main()
