"""Recipes and the training loop. Only :mod:`recipe` is light; the rest imports torch."""

from ..errors import CheckpointError, DivergedError, Interrupted, RecipeError, TrainingError
from .recipe import Recipe, read_recipe

__all__ = ["CheckpointError", "DivergedError", "Interrupted", "Recipe", "RecipeError", "TrainingError", "read_recipe"]
