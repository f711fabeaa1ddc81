"""How long a report takes on a number of GPUs: arithmetic, not a measurement."""

from types import SimpleNamespace

from ..data.load import format_of
from ..training.recipe import Recipe
from .plan import Plan

TERAFLOPS = 30.0  # a cautious sustained rate of one recent GPU in half precision
WIDTH, INNER, BLOCKS = 768, 3072, 12  # of ViT-B


def training_pairs(recipe: Recipe) -> int:
    """Pairs of an epoch by the published sizes of the benchmark; 0 where there are none."""
    published = format_of(recipe.data.benchmark).published
    size = published.get("train") or published.get("train+val")
    if size is None:
        return 0
    return size.videos if recipe.data.items == "videos" else size.captions or size.videos


def expected_hours(plan: Plan, *, gpus: int, teraflops: float = TERAFLOPS) -> float:
    """Hours of training a row on ``gpus``, if they only computed: forward and backward passes of the vision tower.

    Decoding, text and validation come on top; clusters with slow disks wait for frames.
    """
    if plan.row.zero_shot:
        return 0.0
    from ..model.measure import multiply_adds

    recipe = plan.recipe
    patch = 16 if "patch16" in recipe.model.start else 32
    tower = SimpleNamespace(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=BLOCKS, num_channels=3, patch_size=patch
    )
    once = multiply_adds(tower, plan.setting, recipe.model.frames, (224 // patch) ** 2)
    operations = 2 * 3 * once * training_pairs(recipe) * recipe.train.epochs  # a backward pass is two forward passes
    return operations / (gpus * teraflops * 1e12) / 3600
