"""uint8 frames -> what a vision tower takes: short side resized, centre cropped, normalised. No torchvision."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from ..errors import ModelError

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
FILTERS = {2: "bilinear", 3: "bicubic"}  # PIL's numbers, as preprocessor_config.json has them


@dataclass(frozen=True)
class Preprocess:
    """How frames become pixels for a model.

    ``resize="torch"`` works on whole batches, within two grey levels of 255 of PIL; ``"pil"`` is PIL itself.
    """

    size: int = 224
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    filter: Literal["bicubic", "bilinear"] = "bicubic"
    crop: bool = True  # False squashes the frame into the square, as SigLIP does
    short_side: int | None = None  # resize to this before the crop; the crop's size by default
    resize: Literal["torch", "pil"] = "torch"

    @classmethod
    def from_config(cls, config: dict[str, Any], size: int) -> "Preprocess":
        """Read a Hugging Face image processor's settings; ``size`` is the model's image size."""
        resized = config.get("size", size)
        short = resized if isinstance(resized, int) else resized.get("shortest_edge")
        return cls(
            size=size,
            mean=tuple(config.get("image_mean") or CLIP_MEAN),
            std=tuple(config.get("image_std") or CLIP_STD),
            filter=FILTERS.get(config.get("resample", 3), "bicubic"),  # type: ignore[arg-type]
            crop=bool(config.get("do_center_crop", short is not None)),
            short_side=short if short and short != size else None,
        )

    def to_config(self) -> dict[str, Any]:
        """The same as a Hugging Face ``preprocessor_config.json``, for other tools."""
        numbers = {name: number for number, name in FILTERS.items()}
        square = {"height": self.size, "width": self.size}
        return {
            "image_processor_type": "CLIPImageProcessor",
            "do_resize": True,
            "size": {"shortest_edge": self.short_side or self.size} if self.crop else square,
            "resample": numbers[self.filter],
            "do_center_crop": self.crop,
            "crop_size": square,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "do_convert_rgb": True,
        }

    @property
    def read_size(self) -> int | None:
        """The short side at which frames are read from a file; None keeps their own size.

        A model that crops needs no more than the short side that it resizes to. One that squashes needs both sides.
        """
        return (self.short_side or self.size) if self.crop else None

    def with_resize(self, resize: Literal["torch", "pil"]) -> "Preprocess":
        """The same with another resize."""
        return replace(self, resize=resize)

    def __call__(self, rgb: Tensor) -> Tensor:
        """uint8 ``[..., H, W, 3]`` -> float32 ``[..., 3, size, size]``, on the device of the input."""
        if rgb.dtype != torch.uint8 or rgb.dim() < 3 or rgb.shape[-1] != 3:
            raise ModelError(f"frames must be uint8 [..., H, W, 3], got {rgb.dtype} {list(rgb.shape)}")
        if 0 in rgb.shape[-3:]:
            raise ModelError(f"frames are empty: {list(rgb.shape)}")
        squares = self.to_square(rgb.flatten(0, -4) if rgb.dim() > 3 else rgb[None])
        return self.normalise(squares).reshape(*rgb.shape[:-3], 3, self.size, self.size)

    def normalise(self, squares: Tensor) -> Tensor:
        """uint8 squares of :meth:`to_square`, ``[..., size, size, 3]`` -> float32 ``[..., 3, size, size]``."""
        pixels = squares.movedim(-1, -3).to(torch.float32)
        scale = pixels.new_tensor(self.std)[:, None, None] * 255
        shift = pixels.new_tensor([m / s for m, s in zip(self.mean, self.std, strict=True)])[:, None, None]
        return pixels.div_(scale).sub_(shift)

    def to_square(self, rgb: Tensor) -> Tensor:
        """uint8 ``[N, H, W, 3]`` -> uint8 ``[N, size, size, 3]``."""
        height, width = rgb.shape[1:3]
        if self.crop:
            short = self.short_side or self.size
            target = (short, short * width // height) if height <= width else (short * height // width, short)
        else:
            target = (self.size, self.size)
        if target != (height, width):
            rgb = _resize_pil(rgb, target, self.filter) if self.resize == "pil" else _resize(rgb, target, self.filter)
        top, left = (target[0] - self.size) // 2, (target[1] - self.size) // 2
        return rgb[:, top : top + self.size, left : left + self.size]


def _resize(rgb: Tensor, target: tuple[int, int], filter_name: str) -> Tensor:
    channels_first = rgb.permute(0, 3, 1, 2)  # channels-last memory: torch's uint8 kernel is at its best
    if rgb.device.type != "cpu":  # the uint8 kernel is a CPU's
        channels_first = channels_first.float()
    resized = interpolate(channels_first, target, mode=filter_name, antialias=True, align_corners=False)
    if rgb.device.type != "cpu":
        resized = resized.round_().clamp_(0, 255).to(torch.uint8)
    return resized.permute(0, 2, 3, 1)


def _resize_pil(rgb: Tensor, target: tuple[int, int], filter_name: str) -> Tensor:
    method = Image.Resampling.BICUBIC if filter_name == "bicubic" else Image.Resampling.BILINEAR
    frames = [np.asarray(Image.fromarray(frame).resize((target[1], target[0]), method)) for frame in rgb.cpu().numpy()]
    return torch.from_numpy(np.stack(frames)).to(rgb.device)
