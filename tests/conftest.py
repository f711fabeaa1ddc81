"""For all tests: a run that hangs is killed, with its processes; converted models go to a folder of the run's own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

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


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """`centerclip demo`, once for all tests of real pictures: its folder, with an index, and its output."""
    from centerclip.cli import app

    folder = tmp_path_factory.mktemp("film") / "demo"
    done = CliRunner().invoke(app, ["demo", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return folder, done.output
