"""Tiny models of the real classes, and a writer of OpenAI's format that shares nothing with the reader."""

import torch
from transformers import (
    BertConfig,
    CLIPConfig,
    CLIPModel,
    CLIPTokenizer,
    Dinov2Config,
    SiglipConfig,
    SiglipModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

from centerclip import CenterCLIP
from centerclip.model.backbone import Backbone
from centerclip.model.preprocess import Preprocess
from centerclip.model.tokenizer import byte_letters

SIDE, PATCH, BLOCKS = 32, 8, 4  # 16 patches a frame


def clip(width=32, vocabulary=600, seed=0):
    torch.manual_seed(seed)
    tower = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": max(1, width // 64)}
    special = {"bos_token_id": vocabulary - 2, "eos_token_id": vocabulary - 1, "pad_token_id": vocabulary - 1}
    config = CLIPConfig(
        projection_dim=24,
        vision_config={**tower, "num_hidden_layers": BLOCKS, "image_size": SIDE, "patch_size": PATCH},
        text_config={
            **tower,
            "num_hidden_layers": 2,
            "vocab_size": vocabulary,
            "max_position_embeddings": 77,
            **special,
        },
    )
    model = CLIPModel(config).eval()
    with torch.no_grad():  # the default start is so small that all images look alike
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embedding" not in name:
                parameter.mul_(8)
    return model


def tokenizer(vocabulary=600):
    letters = list(byte_letters().values())
    tokens = letters + [letter + "</w>" for letter in letters]
    tokens += [f"unused{i}" for i in range(vocabulary - 2 - len(tokens))] + ["<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[], model_max_length=77)


def center_clip(clustering="none", frames=12, **options):
    backbone = Backbone(clip(), tokenizer(), Preprocess(size=SIDE))
    return CenterCLIP(backbone, clustering=clustering, frames=frames, **options).eval()


def siglip():
    torch.manual_seed(0)
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    return SiglipModel(
        SiglipConfig(
            vision_config={**tower, "num_hidden_layers": BLOCKS, "image_size": SIDE, "patch_size": PATCH},
            text_config={**tower, "num_hidden_layers": 2, "vocab_size": 600, "max_position_embeddings": 16},
        )
    ).eval()


def dual_encoder():
    torch.manual_seed(0)
    vision = Dinov2Config(
        hidden_size=32, num_hidden_layers=BLOCKS, num_attention_heads=2, image_size=SIDE, patch_size=PATCH
    )
    text = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=600,
        max_position_embeddings=40,
    )  # fmt: skip
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=24)
    return VisionTextDualEncoderModel(config).eval()


def videos(count=2, frames=12, side=SIDE, seed=0):
    """uint8 ``[count, frames, side, side, 3]``: a still image with noise that flickers."""
    generator = torch.Generator().manual_seed(seed)
    still = torch.randint(0, 200, (count, 1, side, side, 3), generator=generator)
    noise = torch.randint(0, 55, (count, frames, side, side, 3), generator=generator)
    return (still + noise).to(torch.uint8)


def openai_weights(model):
    """A Hugging Face CLIP's weights under OpenAI's names."""
    state, out = model.state_dict(), {}
    out["visual.proj"] = state["visual_projection.weight"].T.clone()
    out["text_projection"] = state["text_projection.weight"].T.clone()
    out["logit_scale"] = state["logit_scale"]
    out["visual.class_embedding"] = state["vision_model.embeddings.class_embedding"]
    out["visual.conv1.weight"] = state["vision_model.embeddings.patch_embedding.weight"]
    out["visual.positional_embedding"] = state["vision_model.embeddings.position_embedding.weight"]
    out["token_embedding.weight"] = state["text_model.embeddings.token_embedding.weight"]
    out["positional_embedding"] = state["text_model.embeddings.position_embedding.weight"]
    for kind in ("weight", "bias"):
        out[f"visual.ln_pre.{kind}"] = state[f"vision_model.pre_layrnorm.{kind}"]
        out[f"visual.ln_post.{kind}"] = state[f"vision_model.post_layernorm.{kind}"]
        out[f"ln_final.{kind}"] = state[f"text_model.final_layer_norm.{kind}"]
        for openai, ours, depth in (("visual.transformer", "vision_model", BLOCKS), ("transformer", "text_model", 2)):
            for i in range(depth):
                source, target = f"{ours}.encoder.layers.{i}", f"{openai}.resblocks.{i}"
                out[f"{target}.attn.in_proj_{kind}"] = torch.cat(
                    [state[f"{source}.self_attn.{letter}_proj.{kind}"] for letter in "qkv"]
                )
                out[f"{target}.attn.out_proj.{kind}"] = state[f"{source}.self_attn.out_proj.{kind}"]
                out[f"{target}.ln_1.{kind}"] = state[f"{source}.layer_norm1.{kind}"]
                out[f"{target}.ln_2.{kind}"] = state[f"{source}.layer_norm2.{kind}"]
                out[f"{target}.mlp.c_fc.{kind}"] = state[f"{source}.mlp.fc1.{kind}"]
                out[f"{target}.mlp.c_proj.{kind}"] = state[f"{source}.mlp.fc2.{kind}"]
    return {name: value.detach().clone() for name, value in out.items()}
