"""The store conforms on a real Milvus server."""

from pathlib import Path

import pytest

from tests.machines.parts import Milvus
from tests.search.test_milvus import MilvusConformance


class TestMilvusServer(MilvusConformance):
    @pytest.fixture(autouse=True)
    def server(self, milvus: Milvus) -> None:
        self.milvus = milvus

    def address(self, folder: Path) -> str:
        return f"{self.milvus.address}/conformance"
