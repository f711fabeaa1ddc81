"""The untrained small model, put together from two free towers: DINOv2 ViT-S/14 and MiniLM-L6.

    python recipes/small/parts.py dinov2_vits14.onnx MINILM OUT [--width 256]

The vision tower's weights come out of an ONNX file, the text tower is a Hugging Face folder. MiniLM was trained with
the mean of its token vectors, a dual encoder takes the first token's: a seventh layer starts as that mean.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn.functional import interpolate
from transformers import (
    AutoTokenizer,
    BertModel,
    BitImageProcessor,
    Dinov2Config,
    Dinov2Model,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WIDTH, BLOCKS, HEADS, PATCH, SIZE = 384, 12, 6, 14, 224


def vision_tower(path: Path) -> Dinov2Model:
    """DINOv2 ViT-S/14 for 224 px from its ONNX file: named tensors, then each block's four matrices in their order."""
    graph = onnx.load(str(path)).graph
    tensors = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}
    matrices = [tensor for name, tensor in tensors.items() if name.startswith("onnx::MatMul")]
    (grid,) = (tensor for tensor in tensors.values() if tensor.shape == (1, 37 * 37, WIDTH))
    side = SIZE // PATCH
    image = grid.reshape(1, 37, 37, WIDTH).permute(0, 3, 1, 2)
    places = interpolate(image, (side, side), mode="bicubic", align_corners=False)
    # The exporter found the position of the class token equal to the token itself and stored it once.
    positions = torch.cat([tensors["model.cls_token"], places.flatten(2).transpose(1, 2)], dim=1)
    state = {
        "embeddings.cls_token": tensors["model.cls_token"],
        "embeddings.mask_token": torch.zeros(1, WIDTH),
        "embeddings.position_embeddings": positions,
        "embeddings.patch_embeddings.projection.weight": tensors["model.patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": tensors["model.patch_embed.proj.bias"],
        "layernorm.weight": tensors["model.norm.weight"],
        "layernorm.bias": tensors["model.norm.bias"],
    }
    for block in range(BLOCKS):
        ours, theirs = f"encoder.layer.{block}.", f"model.blocks.{block}."
        qkv, out, fc1, fc2 = (matrix.T for matrix in matrices[4 * block : 4 * block + 4])
        for part, name in enumerate(("query", "key", "value")):
            rows = slice(part * WIDTH, (part + 1) * WIDTH)
            state[f"{ours}attention.attention.{name}.weight"] = qkv[rows]
            state[f"{ours}attention.attention.{name}.bias"] = tensors[f"{theirs}attn.qkv.bias"][rows]
        state |= {
            f"{ours}attention.output.dense.weight": out,
            f"{ours}attention.output.dense.bias": tensors[f"{theirs}attn.proj.bias"],
            f"{ours}mlp.fc1.weight": fc1,
            f"{ours}mlp.fc1.bias": tensors[f"{theirs}mlp.fc1.bias"],
            f"{ours}mlp.fc2.weight": fc2,
            f"{ours}mlp.fc2.bias": tensors[f"{theirs}mlp.fc2.bias"],
            f"{ours}layer_scale1.lambda1": tensors[f"{theirs}ls1.gamma"],
            f"{ours}layer_scale2.lambda1": tensors[f"{theirs}ls2.gamma"],
        }
        for norm in ("norm1", "norm2"):
            for kind in ("weight", "bias"):
                state[f"{ours}{norm}.{kind}"] = tensors[f"{theirs}{norm}.{kind}"]
    config = Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=BLOCKS, num_attention_heads=HEADS, patch_size=PATCH, image_size=SIZE
    )
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    return Dinov2Model.from_pretrained(None, config=config, state_dict=state)  # knows both generations of names


def text_tower(folder: Path) -> BertModel:
    """MiniLM-L6 and a seventh layer that takes the mean of the tokens, so that the first one holds the sentence."""
    small = BertModel.from_pretrained(folder)
    config = small.config
    config.name_or_path = folder.name  # no path of this machine
    config.num_hidden_layers += 1
    tower = BertModel(config)
    missing, _ = tower.load_state_dict(small.state_dict(), strict=False)
    layer = tower.encoder.layer[-1]
    assert all(name.startswith(f"encoder.layer.{config.num_hidden_layers - 1}.") for name in missing)
    attention, eye = layer.attention, torch.eye(config.hidden_size)
    with torch.no_grad():
        attention.self.query.weight.mul_(0.1)  # nearly equal attention to all tokens; exactly 0 would not learn
        attention.self.value.weight.copy_(eye)
        attention.output.dense.weight.copy_(4 * eye)  # the mean outweighs the residual of the first token
        layer.output.dense.weight.mul_(0.1)
        tower.pooler.dense.weight.copy_(0.3 * eye)  # where tanh is nearly linear
        for module in (attention.self.query, attention.self.key, attention.self.value, attention.output.dense,
                       layer.intermediate.dense, layer.output.dense, tower.pooler.dense):  # fmt: skip
            module.bias.zero_()
    return tower


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dinov2", type=Path)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=256, help="of the vectors that both towers project to")
    args = parser.parse_args()
    torch.manual_seed(0)
    vision, text = vision_tower(args.dinov2), text_tower(args.minilm)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision.config, text.config, projection_dim=args.width)
    model = VisionTextDualEncoderModel(config=config, vision_model=vision, text_model=text)
    model.logit_scale.data.fill_(np.log(20.0))
    model.save_pretrained(args.out)
    AutoTokenizer.from_pretrained(args.minilm).save_pretrained(args.out)
    square = {"height": SIZE, "width": SIZE}
    BitImageProcessor(
        size={"shortest_edge": SIZE}, crop_size=square, image_mean=IMAGENET_MEAN, image_std=IMAGENET_STD, resample=3
    ).save_pretrained(args.out)


if __name__ == "__main__":
    main()
