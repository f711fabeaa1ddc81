"""Recipes and the loop that follows them. Only :mod:`recipe` and :mod:`folder` are light; the loop imports torch."""

from ..errors import CheckpointError, DivergedError, Interrupted, RecipeError, TrainingError
from .recipe import Recipe, read_recipe

__all__ = [
    "CheckpointError",
    "DivergedError",
    "Interrupted",
    "Recipe",
    "RecipeError",
    "TrainingError",
    "read_recipe",
]
