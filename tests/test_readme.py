"""The code in README.md and the pages it leads to runs as it stands there, as on a machine with a model and videos."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import CLIPConfig, CLIPModel

from centerclip import CenterCLIP
from centerclip.model.backbone import Backbone
from centerclip.model.known import DEFAULT_MODEL
from centerclip.model.preprocess import Preprocess
from tests.model import tiny
from tests.search.collection import clip

README = Path(__file__).parent.parent / "README.md"
COMMIT = "0" * 40


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A home folder with videos, and a hub cache with a narrow model of the blocks and patches of the real one."""
    clip(tmp_path / "Videos" / "first.mp4", 1)
    clip(tmp_path / "Videos" / "second.mp4", 2)
    clip(tmp_path / "dog.mp4", 3)
    tokenizer = tiny.tokenizer()
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 12, "num_attention_heads": 2}
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = CLIPConfig(
        vision_config=vision | {"image_size": 224, "patch_size": 32},
        text_config=text | {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id},
        projection_dim=512,
    )
    model = CenterCLIP(Backbone(CLIPModel(config).eval(), tokenizer, Preprocess()))
    cached = tmp_path / "hub" / f"models--{DEFAULT_MODEL.replace('/', '--')}"
    model.save_pretrained(cached / "snapshots" / COMMIT)
    (cached / "snapshots" / COMMIT / "centerclip.json").unlink()
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    return tmp_path


def test_python_examples_run(machine: Path) -> None:
    clustering = (README.parent / "docs" / "clustering.md").read_text(encoding="utf-8").partition("## The notation")[0]
    research = (README.parent / "docs" / "research.md").read_text(encoding="utf-8")
    text = README.read_text(encoding="utf-8") + clustering + research
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 5
    shapes = "print(tuple(step.tokens.shape), tuple(video.segments.shape), tuple(frames.rgb.shape[:1]))"
    run = subprocess.run(
        [sys.executable, "-c", "\n".join([*blocks, shapes])],
        cwd=machine,
        env=os.environ | {"HOME": str(machine), "HF_HUB_CACHE": str(machine / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "(4, 50, 768) (4, 512) (12,)"
    hits = set(re.findall(r"\w+\.mp4", run.stdout))
    assert hits  # with random weights, one may pass for a duplicate of the other
    assert hits <= {"first.mp4", "second.mp4"}


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in README.parent.glob("docs/*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    path = README.parent / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_map_names_files_that_exist() -> None:
    text = (README.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(
        r"(?<!tests/)\b((?:bundled|cli|cluster|data|evaluation|model|plots|reports|search|server|training|video)/[\w/]+\.py)",
        text,
    )
    assert len(set(named)) > 30
    for name in named:
        assert (README.parent / "src" / "centerclip" / name).is_file(), name
