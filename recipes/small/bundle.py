"""Put the small model into the package, in 8 bits for ONNX Runtime: python recipes/small/bundle.py MODEL [-o FOLDER]

MODEL is the folder that ``assemble.py`` wrote. What is rounded, and how, is chosen on frames of the bundled clips; the
closeness to float32 is printed and kept in ``centerclip.json``. ``compare.py`` measures what it costs in recall.
"""

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from centerclip.bundled import FOLDER, SMALL, film_clips
from centerclip.files import find_videos, write_atomic
from centerclip.model.backbone import load_preprocess
from centerclip.model.conversion import add_int8, convert, export_form
from centerclip.model.engine import OnnxEncoder
from centerclip.model.pipeline import read_squares
from centerclip.model.precision import WINDOW_FRAMES, compare

MAX_BYTES, MAX_FILE_BYTES = 60_000_000, 50_000_000
EVERY = 2  # of the bundled clips, every second decides what is rounded


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", "-o", type=Path, default=FOLDER / SMALL)
    args = parser.parse_args()
    preprocess = load_preprocess(args.model, 224)
    clips = list(find_videos(film_clips()))[::EVERY]

    def samples() -> np.ndarray:
        """Frames [V, T, size, size, 3]."""
        return np.stack([read_squares(preprocess, clip, WINDOW_FRAMES).rgb for clip in clips])

    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CENTERCLIP_CACHE"] = scratch  # nothing of an earlier conversion
        add_int8(convert(args.model), samples)
        exact = OnnxEncoder(args.model, clustering="none", device="cpu", precision="float32")
        closeness = compare(exact, exact.in_precision("int8"), "B6-2,1/3")
        exported = Path(scratch, SMALL)
        export_form(convert(args.model), args.model, exported, ["int8"])
        settings = json.loads((exported / "centerclip.json").read_text(encoding="utf-8"))
        settings["onnx"]["report"] = {"int8": asdict(closeness)}
        sizes = {path.name: path.stat().st_size for path in exported.iterdir()}
        assert sum(sizes.values()) <= MAX_BYTES, sizes
        assert max(sizes.values()) < MAX_FILE_BYTES, sizes
        args.output.mkdir(parents=True, exist_ok=True)
        for name in sizes:
            write_atomic(args.output / name, (exported / name).read_bytes())
        write_atomic(args.output / "centerclip.json", json.dumps(settings, indent=2) + "\n")
    print(json.dumps({"folder": str(args.output), "bytes": sum(sizes.values()), "files": sizes, **asdict(closeness)}))
    if closeness.complaint:
        print(f"Mind: {closeness.complaint}. compare.py says what that costs.")


if __name__ == "__main__":
    main()
