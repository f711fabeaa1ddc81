"""What can go wrong in a training run, a type for each kind."""

from ..errors import CenterClipError


class TrainingError(CenterClipError):
    """A run cannot start or go on."""


class RecipeError(TrainingError):
    """A recipe, or a setting given with ``--set``, is wrong."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be written or read."""


class DivergedError(TrainingError):
    """The loss is no longer a number."""


class Interrupted(TrainingError):
    """The run was asked to stop (SIGTERM, Ctrl-C) and has saved where it is."""
