"""Jobs in processes of their own: a job that raises, crashes or hangs costs itself and nothing else."""

import multiprocessing
import os
import signal
import time

from centerclip.parallel import run_each


def act(job: str) -> str:
    match job.split():
        case ["raise"]:
            raise ValueError("this one is bad")
        case ["crash"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["hang"]:
            time.sleep(60)
    return job.upper()


def test_every_job_has_an_outcome_whatever_it_does() -> None:
    jobs = ["a", "raise", "crash", "b", "hang", "c", "d"]
    outcomes = {outcome.job: outcome for outcome in run_each(act, jobs, workers=2, timeout=2.0)}
    assert {job: outcome.result for job, outcome in outcomes.items() if outcome.error is None} == {
        "a": "A",
        "b": "B",
        "c": "C",
        "d": "D",
    }
    assert {job: outcome.error for job, outcome in outcomes.items() if outcome.error is not None} == {
        "raise": "this one is bad",
        "crash": "its process ended with signal SIGKILL",
        "hang": "timed out after 2 seconds",
    }
    assert not multiprocessing.active_children()


def test_stopping_early_ends_all_processes() -> None:
    outcomes = run_each(act, ["a", "hang", "b"], workers=2)
    assert next(outcomes).result == "A"
    outcomes.close()
    assert not multiprocessing.active_children()


def test_no_jobs_start_no_process() -> None:
    assert list(run_each(act, [], workers=4)) == []
