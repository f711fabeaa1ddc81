"""Put the trained towers together: a Hugging Face folder that ``CenterCLIP.from_pretrained`` opens.

python recipes/small/assemble.py WORK OUT [--text text] [--vision vision] [--squeeze]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from cache import LOWER
from vision import trained

from centerclip import CenterCLIP

CLUSTERING, FRAMES, MAX_TOKENS = "kmedoids[proportional]:B6-4,1/3", 12, 64


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--init", default="init")
    parser.add_argument("--text", default="text")
    parser.add_argument("--vision", default="vision")
    parser.add_argument("--squeeze", action="store_true", help="squeeze whole frames into the square instead of a crop")
    args = parser.parse_args()
    model = CenterCLIP.from_pretrained(
        args.work / args.init, clustering=CLUSTERING, frames=FRAMES, max_tokens=MAX_TOKENS
    )
    dual = model.backbone
    text = torch.load(args.work / args.text / "best.pt", weights_only=True)
    for name, module in (("tower.", dual.text_model), ("projection.", dual.text_projection)):
        module.load_state_dict(below(text["model"], name))
    dual.logit_scale.data.fill_(text["scale"])
    vision = trained(args.work / args.vision)
    dual.vision_model.encoder.layer[LOWER:].load_state_dict(below(vision, "blocks."))
    dual.vision_model.layernorm.load_state_dict(below(vision, "norm."))
    projection = below(text["model"], "image_projection.") or below(vision, "projection.")
    dual.visual_projection.load_state_dict(projection)
    if args.squeeze:
        model.preprocess = replace(model.preprocess, crop=False)
    model.save_pretrained(args.out)


def below(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The part of a state whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


if __name__ == "__main__":
    main()
