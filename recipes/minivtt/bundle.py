"""Put a trained model into the package, in half precision: python recipes/minivtt/bundle.py runs/minivtt-demo/best"""

import json
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from centerclip import CenterCLIP
from centerclip.bundled import BUNDLE
from centerclip.files import write_atomic

source, target = Path(sys.argv[1]), BUNDLE / "model"
CenterCLIP.from_pretrained(source, similarity_rule="renormalise").save_pretrained(target)
weights = target / "model.safetensors"
halves = {name: tensor.half() if tensor.dim() else tensor for name, tensor in load_file(weights).items()}
write_atomic(weights, lambda path: save_file(halves, path, metadata={"format": "pt"}))
settings = json.loads((target / "centerclip.json").read_text(encoding="utf-8"))
print(f"{target}: {settings}, {sum(file.stat().st_size for file in target.iterdir()) / 1e6:.1f} MB")
