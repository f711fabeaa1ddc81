import numpy as np
import pytest
import torch
from PIL import Image

from centerclip.model import ModelError, Preprocess
from centerclip.model.preprocess import CLIP_MEAN, CLIP_STD


def pil_reference(frame, size, resample=Image.Resampling.BICUBIC):
    """CLIP's preprocessing of one uint8 frame ``[H, W, 3]`` by PIL alone -> ``[3, size, size]``."""
    image = Image.fromarray(frame.numpy())
    width, height = image.size
    if width <= height:
        image = image.resize((size, int(size * height / width)), resample)
    else:
        image = image.resize((int(size * width / height), size), resample)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    array = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float64) / 255
    return torch.from_numpy(((array - CLIP_MEAN) / CLIP_STD).transpose(2, 0, 1)).float()


def image(height, width, seed=0):
    """Smooth shapes, hard edges and noise."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    smooth = 127 + 120 * np.sin(rows[..., None] / 17 + columns[..., None] / (5 + np.arange(3) * 9))
    smooth[rows % 40 < 3] = 255
    noise = generator.integers(-30, 30, (height, width, 3))
    return torch.from_numpy((smooth + noise).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(("height", "width"), [(360, 640), (641, 361), (224, 224), (225, 400), (100, 130), (50, 1000)])
@pytest.mark.parametrize("size", [224, 96])
def test_squares_equal_pil_and_tensors_stay_within_two_grey_levels(height, width, size):
    frame, preprocess = image(height, width), Preprocess(size=size)
    expected = pil_reference(frame, size)
    square = torch.from_numpy(preprocess.to_square(frame.numpy()[None])[0])
    assert torch.allclose(preprocess.normalise(square), expected, atol=1e-5)
    level = 1 / 255 / min(CLIP_STD)
    difference = (preprocess(frame) - expected).abs()
    assert difference.max() <= 2.01 * level
    assert difference.mean() <= 0.1 * level


def test_batches_keep_their_shape():
    video = torch.stack([image(60, 80, seed) for seed in range(6)]).view(2, 3, 60, 80, 3)
    pixels = Preprocess(size=32)(video)
    assert pixels.shape == (2, 3, 3, 32, 32)
    assert torch.equal(pixels[1, 2], Preprocess(size=32)(video[1, 2]))
    assert pixels.dtype == torch.float32


def test_squash_keeps_the_whole_frame():
    frame = torch.zeros(40, 80, 3, dtype=torch.uint8)
    frame[:, :8] = 255
    assert Preprocess(size=32, crop=False)(frame)[0, :, 0].min() > 1
    assert Preprocess(size=32, crop=True)(frame)[0, :, 0].max() < 0


def test_a_larger_short_side_is_cropped():
    preprocess = Preprocess.from_config({"size": {"shortest_edge": 36}, "crop_size": 32}, 32)
    assert preprocess.short_side == 36
    assert preprocess(image(36, 36)).shape == (3, 32, 32)


@pytest.mark.parametrize(
    "preprocess", [Preprocess(), Preprocess(size=96, crop=False, filter="bilinear"), Preprocess(size=32, short_side=40)]
)
def test_config_round_trip(preprocess):
    assert Preprocess.from_config(preprocess.to_config(), preprocess.size) == preprocess


@pytest.mark.parametrize(
    "frames",
    [torch.zeros(8, 8, 3), torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(0, 8, 3, dtype=torch.uint8)],
)
def test_wrong_frames_are_named(frames):
    with pytest.raises(ModelError, match="frames"):
        Preprocess()(frames)


@pytest.mark.parametrize(
    ("preprocess", "read_size"),
    [(Preprocess(size=32), 32), (Preprocess(size=32, short_side=40), 40), (Preprocess(size=32, crop=False), None)],
)
def test_frames_are_read_no_larger_than_the_model_resizes_them(preprocess, read_size):
    assert preprocess.read_size == read_size
