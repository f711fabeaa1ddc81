"""Hosted test sets, from a hub on this machine. Reading Parquet files needs pyarrow (`make test-mteb`)."""

import json

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from centerclip.cli import app
from centerclip.data import DataError, load
from centerclip.data.get import HOSTED, look_up
from tests.model.hub_server import serve
from tests.training.world import make_world

NAME = f"datasets/{HOSTED['msrvtt'].repository}"


@pytest.fixture
def server(monkeypatch, tmp_path):
    with serve() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield server


def host(server, folder):
    (folder / "data").mkdir(parents=True, exist_ok=True)
    revision = HOSTED["msrvtt"].revision
    server.add(NAME, folder, commit=revision, revision=revision)
    return folder / "data" / "test-00000-of-00001.parquet"


def run(*arguments, answer=None):
    return CliRunner().invoke(app, ["data", "get", *map(str, arguments)], input=answer)


@pytest.mark.parametrize(
    ("card", "line"),
    [
        ({"license": "cc-by-4.0"}, "Licence: cc-by-4.0.\n"),
        ({"license": "cc-by-nc-4.0"}, "Licence: cc-by-nc-4.0. Whether you may use it is for you to check: https://"),
        ({}, "No licence is stated. Whether you may use it is for you to check: https://"),
    ],
)
def test_size_and_licence_are_shown_first(server, tmp_path, card, line):
    host(server, tmp_path / "hosted").write_bytes(bytes(2_500_000))
    (tmp_path / "hosted" / "data" / "train-0.parquet").write_bytes(bytes(10))
    server.cards[NAME] = card
    shown = run("msrvtt").stdout
    assert "mteb/MSR-VTT on the Hugging Face hub: 879 clips of the 1,000 of test 1k-A; 2.5 MB." in shown
    assert line in shown
    refused = run("msrvtt", tmp_path / "data", answer="n\n")
    assert refused.exit_code == 1
    assert not (tmp_path / "data").exists()
    assert not server.gets  # nothing was fetched
    assert json.loads(run("msrvtt", "--json").stdout)["bytes"] == 2_500_000


def test_what_goes_wrong_is_said(server):
    with pytest.raises(DataError, match="choose from msrvtt, msvd"):
        look_up("kinetics")
    with pytest.raises(DataError, match="mteb/MSR-VTT could not be fetched"):
        look_up("msrvtt")


def test_a_test_set_becomes_a_folder_of_videos(server, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    clips = sorted(make_world(tmp_path / "world", clips=1, frames=4).glob("*.mp4"))
    rows = {
        "video": [{"bytes": path.read_bytes(), "path": path.name} for path in clips],
        "caption": [f"sentence {number}, with a comma" for number in range(len(clips))],
        "audio": [None] * len(clips),
    }
    file = host(server, tmp_path / "hosted")
    parquet.write_table(pyarrow.table(rows), file)
    result = run("msrvtt", tmp_path / "data", "--yes")
    assert result.exit_code == 0, result.output
    assert "4 videos in" in result.stdout
    data = load("folder", tmp_path / "data", "test")
    assert data.captions == tuple(rows["caption"])
    assert [clip.path.read_bytes() for clip in data.videos] == [row["bytes"] for row in rows["video"]]
    sent = len(server.gets)
    assert run("msrvtt", tmp_path / "data", "--yes").exit_code == 0
    assert len(server.gets) == sent  # from the cache
