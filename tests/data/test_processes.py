"""Jobs in processes of their own: a job that raises, crashes or hangs costs itself and nothing else."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess

from centerclip.parallel import run_each


def act(job: str) -> str:
    match job.split():
        case ["raise"]:
            raise ValueError("this one is bad")
        case ["crash"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["hang"]:
            threading.Event().wait()
    return job.upper()


def started(before: list[BaseProcess]) -> list[BaseProcess]:
    """Processes that are alive now and were not before."""
    return [process for process in multiprocessing.active_children() if process not in before]


def test_every_job_has_an_outcome_whatever_it_does() -> None:
    before = multiprocessing.active_children()
    jobs = ["a", "raise", "crash", "b", "c", "d"]
    outcomes = {outcome.job: outcome for outcome in run_each(act, jobs, workers=2)}
    assert {job: outcome.result for job, outcome in outcomes.items() if outcome.error is None} == {
        "a": "A",
        "b": "B",
        "c": "C",
        "d": "D",
    }
    assert {job: outcome.error for job, outcome in outcomes.items() if outcome.error is not None} == {
        "raise": "this one is bad",
        "crash": "its process ended with signal SIGKILL",
    }
    assert not started(before)


def test_a_job_that_hangs_is_killed_after_its_time() -> None:
    before = multiprocessing.active_children()
    (outcome,) = run_each(act, ["hang"], workers=1, timeout=0.1)
    assert (outcome.result, outcome.error) == (None, "timed out after 0.1 seconds")
    assert not started(before)


def test_stopping_early_ends_all_processes() -> None:
    before = multiprocessing.active_children()
    outcomes = run_each(act, ["a", "hang", "b"], workers=2)
    assert next(outcomes).result == "A"
    outcomes.close()
    assert not started(before)


def test_no_jobs_start_no_process() -> None:
    assert list(run_each(act, [], workers=4)) == []
