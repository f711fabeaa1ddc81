"""Killed at named points and at any moment: the index opens, nothing reported is lost, the next run ends alike."""

from random import Random

import pytest

from .kills import OPERATIONS, Killer


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Killer:
    return Killer(tmp_path_factory.mktemp("kills"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_loses_nothing(killer: Killer, operation: str) -> None:
    chance = Random(f"1-{operation}")
    for at_a_point in (True, True, False):
        killer.kill(operation, chance, at_a_point=at_a_point)
    print(killer.outcome)
    assert killer.events[operation] >= 4, "nothing to be killed at"
    assert not killer.outcome.lost
