"""mteb's wrapper, on a small task in its format: `make test-mteb` installs mteb, which is large, and runs this."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from centerclip.cli import app
from centerclip.evaluation import retrieval_metrics
from tests.model import tiny
from tests.training.world import make_world

pytest.importorskip("mteb")

from datasets import Dataset, Features, Value, Video
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from centerclip.errors import EvaluationError
from centerclip.integrations import mteb as integration

METADATA = {
    "name": "TinyT2V", "description": "made up", "reference": None, "dataset": {"path": "none/none", "revision": "1"},
    "type": "Any2AnyRetrieval", "category": "t2v", "eval_splits": ["test"], "eval_langs": ["eng-Latn"],
    "main_score": "ndcg_at_10", "date": None, "domains": ["Web"], "task_subtypes": [], "license": "mit",
    "annotations_creators": "derived", "dialect": [], "modalities": ["text", "video"], "sample_creation": "created",
    "bibtex_citation": "",
}  # fmt: skip


class TinyT2V(AbsTaskRetrieval):
    metadata = TaskMetadata(**METADATA)
    videos: tuple = ()

    def load_data(self, **_):
        if self.data_loaded:
            return
        ids = [str(number) for number in range(len(self.videos))]
        features = Features({"id": Value("string"), "video": Video()})
        rows = [{"bytes": content, "path": None} for content in self.videos]
        corpus = Dataset.from_dict({"id": ids, "video": rows}, features=features)
        queries = Dataset.from_dict({"id": ids, "text": [f"a thing {number}" for number in ids]})
        split = {"corpus": corpus, "queries": queries, "relevant_docs": {each: {each: 1} for each in ids}}
        self.dataset = {"default": {"test": {**split, "top_ranked": None}}}
        self.data_loaded = True


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = make_world(tmp_path_factory.mktemp("world"), clips=2, frames=4)
    return sorted(folder.glob("*.mp4"))


@pytest.fixture
def task(clips):
    made = TinyT2V()
    made.videos = tuple(path.read_bytes() for path in clips)
    return made


def test_a_task_gives_the_recall_of_our_own_metrics(clips, task):
    model = tiny.center_clip("B2-2,8", frames=4)
    (result,) = integration.run_tasks(model, [task])
    queries = model.encode_query([f"a thing {number}" for number in range(len(clips))])
    expected = retrieval_metrics(queries @ model.encode_document(clips).T)["t2v"]
    assert {name: result.metrics[name] for name in ("R1", "R5", "R10")} == pytest.approx(
        {name: expected[name] for name in ("R1", "R5", "R10")}, abs=0.01
    )
    assert 0 < result.metrics["nDCG10"] <= 100
    assert (result.queries, result.gallery, result.unreadable) == (8, 8, 0)


def test_a_damaged_video_is_counted_and_never_found(clips, task):
    task.videos = (b"not a video", *task.videos[1:])
    encoder_results = integration.run_tasks(tiny.center_clip("B2-2,8", frames=4), [task])
    assert encoder_results[0].unreadable == 1
    assert np.isfinite(encoder_results[0].metrics["R1"])


def test_the_command_prints_a_table_that_says_what_differs(task, tmp_path, monkeypatch):
    tiny.center_clip("B2-2,8", frames=4).save_pretrained(tmp_path)
    monkeypatch.setattr(integration, "find_tasks", lambda names: [task])
    monkeypatch.setitem(integration.TASKS, "TinyT2V", "two clips of the 1,000")
    arguments = ["evaluate", str(tmp_path), "--mteb", "TinyT2V"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"}, catch_exceptions=False)
    assert result.exit_code == 0
    assert "nDCG@10" in result.stdout
    assert "two clips of the 1,000" in result.stdout
    listed = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert listed[0]["gallery"] == 8


def test_the_tasks_are_those_that_mteb_has():
    tasks = integration.find_tasks(["all"])
    assert [each.metadata.name for each in tasks] == list(integration.TASKS)
    assert "879" in tasks[0].metadata.description
    with pytest.raises(EvaluationError, match="did you mean MSRVTTT2V"):
        integration.find_tasks(["MSRVTT2V"])
    with pytest.raises(EvaluationError, match="no retrieval of videos by text"):
        integration.find_tasks(["STS12"])
