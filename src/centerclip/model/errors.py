"""What can go wrong while a model is opened."""

from ..errors import CenterClipError


class ModelError(CenterClipError):
    """A model cannot be opened or used."""


class ModelNotFound(ModelError):
    """No such file, folder or hub name, or no connection to the hub."""


class NotADualEncoder(ModelError):
    """The model is of a kind that does not turn pictures and words into vectors of one space."""


class WrongWeights(ModelError):
    """Weights are missing, left over or of another shape than the model's."""


class UntrustedFile(ModelError):
    """Opening the file would run code that comes with it."""
