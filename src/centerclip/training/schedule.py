"""The learning rate of every step."""

import math


def rate(step: int, steps: int, *, warmup: float) -> float:
    """What the learning rate of step ``step`` (from 0) is multiplied with: a linear rise, then a cosine to 0.

    Args:
        step: the step that is about to be taken.
        steps: steps of the whole run.
        warmup: part of the steps with a rising rate.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))
