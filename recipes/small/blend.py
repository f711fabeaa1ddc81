"""The mean of the vision tower that training began with and the one that it ended with.

    python recipes/small/blend.py WORK --init init-restored --trained vision --out vision-blended [--share 0.5]

What training forgets, the start still knows: between the two the similarity to the teacher and the recall are higher
than at either end, on photographs of a kind that was trained on and on others.
"""

import argparse
import json
from pathlib import Path

import torch
from vision import Upper, trained


def main() -> None:
    """Write a folder as ``vision.py`` does, that cannot be trained on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--init", default="init-restored")
    parser.add_argument("--trained", default="vision")
    parser.add_argument("--out", default="vision-blended")
    parser.add_argument("--share", type=float, default=0.5, help="of the trained weights")
    args = parser.parse_args()
    width = json.loads((args.work / args.init / "config.json").read_text())["projection_dim"]
    first, last = Upper(args.work / args.init, width).state_dict(), trained(args.work / args.trained)
    mean = {f"module.{name}": torch.lerp(first[name], last[name], args.share) for name in first}
    (args.work / args.out).mkdir(exist_ok=True)
    torch.save({"mean": mean}, args.work / args.out / "checkpoint.pt")


if __name__ == "__main__":
    main()
