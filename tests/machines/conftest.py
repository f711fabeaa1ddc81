"""Tests that start real parts; `make test-cluster` runs them, `make test` does not."""

import os
from collections.abc import Iterator

import pytest

collect_ignore_glob = [] if os.environ.get("CENTERCLIP_CLUSTER") else ["test_*.py"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> object:
    from tests.machines.world import World

    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from tests.machines.parts import Milvus

    server = Milvus(tmp_path_factory.mktemp("milvus"))
    yield server
    server.kill()
