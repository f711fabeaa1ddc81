"""A model folder for all tests of a session."""

from pathlib import Path

import pytest

from tests.search.collection import save_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")
