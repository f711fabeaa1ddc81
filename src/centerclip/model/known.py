"""Models of the hub that are known to be good, short names for some of them, and how fast they are on this machine."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# The best published retrieval of the ViT-B/32 that have safetensors: sentence to image on MS-COCO R@1 39.3, R@5 65.4
# where OpenAI's has 30.4 and 55.9 (open_clip's docs/openclip_retrieval_results.csv).
DEFAULT_MODEL = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
RUNS = 3  # the quickest counts
FRAMES = 4  # at a time


@dataclass(frozen=True)
class KnownModel:
    """A model of the hub."""

    name: str
    parameters: float  # in millions, of both towers
    languages: str
    good_for: str
    vision: tuple[int, int, int, int]  # image size, patch size, width, blocks
    short: str = ""  # a name for --model
    engine: str = "onnxruntime"  # what it needs at least

    @property
    def megabytes(self) -> float:
        """Of its weights in float32: what is fetched."""
        return 4 * self.parameters

    @property
    def patches(self) -> int:
        """Of a frame."""
        image, patch, _, _ = self.vision
        return (image // patch) ** 2


BASE_32, BASE_16, SO400M = (224, 32, 768, 12), (224, 16, 768, 12), (224, 14, 1152, 27)
KNOWN_MODELS = (
    KnownModel(DEFAULT_MODEL, 151.3, "English", "the default: good recall on a laptop", BASE_32, "fast"),
    KnownModel("facebook/metaclip-b32-fullcc2.5b", 151.3, "English", "as the default, other training data", BASE_32),
    KnownModel("laion/CLIP-ViT-B-16-laion2B-s34B-b88K", 149.6, "English", "small things in the picture", BASE_16),
    KnownModel("google/siglip-base-patch16-224", 203.2, "English", "better recall, three times the work", BASE_16),
    KnownModel(
        "google/siglip2-base-patch32-256", 376.9, "109 languages", "searching in your language, on a laptop",
        (256, 32, 768, 12), "multilingual",
    ),
    KnownModel("google/siglip2-base-patch16-224", 375.2, "109 languages", "the same, with better recall", BASE_16),
    KnownModel(
        "google/siglip2-so400m-patch14-224", 1135.5, "109 languages", "the best recall, with a GPU or patience",
        SO400M, "best",
    ),
    KnownModel("OFA-Sys/chinese-clip-vit-base-patch16", 188.3, "Chinese", "Chinese", BASE_16, engine="torch"),
    KnownModel("openai/clip-vit-base-patch32", 151.3, "English", "the paper's starting point", BASE_32, engine="torch"),
)  # fmt: skip
SHORT_NAMES = {known.short: known.name for known in KNOWN_MODELS if known.short}


def full_name(name: str | Path) -> str | Path:
    """The hub name that ``"fast"``, ``"best"`` and ``"multilingual"`` stand for; any other name is itself."""
    return SHORT_NAMES.get(str(name), name) if not Path(name).exists() else name


def frames_per_second(model: KnownModel) -> float:
    """About how many frames a second its vision tower takes on this machine, in float32 and without clustering.

    Two products of the size of its MLP layers are timed, which are two thirds of the arithmetic of a block: nothing has
    to be fetched for that. ``centerclip bench encoder`` measures a model itself.
    """
    _, _, width, blocks = model.vision
    return FRAMES / (1.5 * blocks * _mlp_seconds(width, FRAMES * (model.patches + 1)))


@cache
def _mlp_seconds(width: int, tokens: int) -> float:
    import numpy as np

    generator = np.random.default_rng(0)
    hidden, first, second = (
        generator.standard_normal(shape, np.float32)
        for shape in ((tokens, width), (width, 4 * width), (4 * width, width))
    )
    seconds = []
    for _ in range(1 + RUNS):  # the first one starts the threads
        start = time.perf_counter()
        hidden @ first @ second
        seconds.append(time.perf_counter() - start)
    return min(seconds)
