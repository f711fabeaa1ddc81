"""For all tests: a run that hangs is killed, with its processes; converted models go to a folder of the run's own."""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.watchdog import SECONDS, Watchdog

WATCHDOG = pytest.StashKey[Watchdog]()
CACHE = pytest.StashKey[str]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[CACHE] = os.environ["CENTERCLIP_CACHE"] = tempfile.mkdtemp(prefix="centerclip-tests-")
    session.stash[WATCHDOG] = Watchdog(float(os.environ.get("CENTERCLIP_TEST_SECONDS", SECONDS)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.session.stash[WATCHDOG].tell(item.nodeid)
    result = yield
    item.session.stash[WATCHDOG].tell(f"what comes after {item.nodeid}")
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.stash[WATCHDOG].close()
    shutil.rmtree(session.stash[CACHE], ignore_errors=True)
