"""uint8 frames -> what a vision tower takes: short side resized, centre cropped, normalised. No torchvision.

Frames are NumPy arrays and PIL resizes them, as CLIP's own preprocessing did. Tensors stay on their device.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
FILTERS = {2: "bilinear", 3: "bicubic"}  # PIL's numbers, as preprocessor_config.json has them


@dataclass(frozen=True)
class Preprocess:
    """How frames become pixels for a model."""

    size: int = 224
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    filter: Literal["bicubic", "bilinear"] = "bicubic"
    crop: bool = True  # False squashes the frame into the square, as SigLIP does
    short_side: int | None = None  # resize to this before the crop; the crop's size by default

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

    def to_square(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8 ``[N, H, W, 3]`` -> uint8 ``[N, size, size, 3]``, with memory of its own."""
        target = self._resized(*rgb.shape[1:3])
        if target != rgb.shape[1:3]:
            rgb = _resize(rgb, target, self.filter)
        rows, columns = self._centre(target)
        # A copy also where nothing is resized: small, and alike for all videos, while the whole frames are let go.
        return rgb[:, rows, columns].copy()

    def normalise(self, squares: "Tensor") -> "Tensor":
        """uint8 squares of :meth:`to_square`, ``[..., size, size, 3]`` -> float32 ``[..., 3, size, size]``."""
        pixels = squares.movedim(-1, -3).float()
        scale, shift = (pixels.new_tensor(values)[:, None, None] for values in self.scale_and_shift())
        return pixels.div_(scale).sub_(shift)

    def scale_and_shift(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """A colour's value from 0 to 255 becomes ``value / scale - shift``; ``[3]`` each."""
        scale = np.array(self.std, dtype=np.float32) * np.float32(255)
        return scale, np.divide(self.mean, self.std).astype(np.float32)

    def __call__(self, rgb: "Tensor") -> "Tensor":
        """uint8 ``[..., H, W, 3]`` -> float32 ``[..., 3, size, size]``, on the device of the input.

        Frames of another size are resized by torch, within two grey levels of 255 of PIL.
        """
        import torch
        from torch.nn.functional import interpolate

        if rgb.dtype != torch.uint8 or rgb.dim() < 3 or rgb.shape[-1] != 3:
            raise ModelError(f"frames must be uint8 [..., H, W, 3], got {rgb.dtype} {list(rgb.shape)}")
        if 0 in rgb.shape[-3:]:
            raise ModelError(f"frames are empty: {list(rgb.shape)}")
        frames = rgb.flatten(0, -4) if rgb.dim() > 3 else rgb[None]
        target = self._resized(*frames.shape[1:3])
        if target != frames.shape[1:3]:
            channels_first = frames.permute(0, 3, 1, 2)  # channels-last memory: torch's uint8 kernel is at its best
            if rgb.device.type != "cpu":  # that kernel is a CPU's
                channels_first = channels_first.float()
            resized = interpolate(channels_first, target, mode=self.filter, antialias=True, align_corners=False)
            frames = resized.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
        rows, columns = self._centre(target)
        return self.normalise(frames[:, rows, columns]).reshape(*rgb.shape[:-3], 3, self.size, self.size)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Height and width before the crop."""
        if not self.crop:
            return self.size, self.size
        short = self.short_side or self.size
        return (short, short * width // height) if height <= width else (short * height // width, short)

    def _centre(self, resized: tuple[int, int]) -> tuple[slice, slice]:
        """The rows and columns that the crop keeps."""
        starts = [(side - self.size) // 2 for side in resized]
        return slice(starts[0], starts[0] + self.size), slice(starts[1], starts[1] + self.size)


def _resize(rgb: NDArray[np.uint8], target: tuple[int, int], filter_name: str) -> NDArray[np.uint8]:
    from PIL import Image  # rarely needed: frames are read at the size that the model takes

    method = Image.Resampling.BICUBIC if filter_name == "bicubic" else Image.Resampling.BILINEAR
    return np.stack([np.asarray(Image.fromarray(frame).resize(target[::-1], method)) for frame in rgb])
