"""What stands beside the code: versions agree, the site's pages and the commands of .ci/run are there."""

import re
from pathlib import Path

import pytest
import yaml

import centerclip

ROOT = Path(__file__).parent.parent


def pages(entry):
    """The files of the site's navigation."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [page for value in entry.values() for page in pages(value)]
    return [page for each in entry for page in pages(each)]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == centerclip.__version__
    assert citation["preferred-citation"]["doi"] == "10.1145/3477495.3531950"


def test_the_changelog_has_this_version_or_what_comes():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in headings[1:])


def test_the_pages_of_the_site_are_there():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in pages(yaml.safe_load(text)["nav"]):
        assert (ROOT / "docs" / page).is_file() or (ROOT / page).is_file(), page


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_templates_are_forms(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes", "markdown")
        assert field["attributes"]["label"]


def test_what_is_run_for_every_change_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"lint", "test", "demo"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_package_is_typed():
    assert (Path(centerclip.__file__).parent / "py.typed").is_file()


def test_no_number_is_left_open():
    """FILL marks a number that is still to be printed by the command beside it."""
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"\bFILL\b", path.read_text(encoding="utf-8")), path.name
