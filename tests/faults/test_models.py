"""Hostile models are refused with a sentence; nothing of them runs, and memory is bounded."""

import os
from pathlib import Path

import pytest

from tests.search.collection import save_model
from tests.training.commands import CONTEXT

from .models import hostile, open_all

HARMLESS = {"good", "auto_map", "tokenizer with an immense id"}  # what is named there is not looked at


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_hostile_models_are_refused_and_run_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "code has run"
    good = save_model(tmp_path / "good")
    models = {"good": good, **hostile(good, tmp_path / "hostile", canary)}
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=open_all, args=(theirs, models, ("onnxruntime", "torch")))
    process.start()
    theirs.close()
    became: dict[tuple[str, str], str] = {}
    while len(became) < 2 * len(models) and ours.poll(170):
        try:
            name, engine, outcome = ours.recv()
        except EOFError:
            break
        became[name, engine] = outcome
    process.kill()
    process.join()
    for key, outcome in became.items():
        print(*key, outcome[:160], sep=" | ")
    assert len(became) == 2 * len(models), f"the process ended or hung after {list(became)[-1]}"
    assert not canary.exists(), "code of a model has run"
    assert not {key: outcome for key, outcome in became.items() if outcome.startswith("FAULT")}
    assert {name for (name, _), outcome in became.items() if outcome == "opened"} <= HARMLESS
    print(f"models: {len(models) - 1} hostile ones on 2 engines: {len(became) - 2} outcomes, 0 faults")
