"""What is installed has licences that were accepted, and a bill of materials lists it."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "supply_chain.py"


@pytest.fixture(scope="module")
def chain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply_chain", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_licence_of_what_users_install_is_accepted(chain: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert chain.licences() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 40
    assert any(line.startswith("numpy ") for line in lines)


@pytest.mark.parametrize(
    ("licence", "accepted"),
    [
        ("MIT", True),
        ("BSD License", True),
        ("Apache-2.0 WITH LLVM-exception AND (MIT)", True),
        ("GPL-3.0-only OR MIT", True),
        ("OSI Approved AND MIT License", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-2.0-or-later", False),
        ("GNU Affero General Public License v3", False),
        ("Other/Proprietary License", False),
        ("unknown", False),
    ],
)
def test_licences_that_ask_more_are_not_accepted(chain: ModuleType, licence: str, accepted: bool) -> None:
    assert chain.is_accepted(licence) is accepted


def test_the_bill_of_materials_names_versions_and_what_wheels_carry(
    chain: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    chain.sbom()
    document = json.loads(capsys.readouterr().out)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in document["components"]}
    assert {"av", "numpy", "onnxruntime", "fastapi"} <= parts.keys()
    assert all(part["version"] and part["purl"].endswith(part["version"]) for part in parts.values())
    assert "centerclip" not in parts
