"""``centerclip show``: which patches are kept, as pictures and as JSON."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from centerclip.cli.models import show
from centerclip.cluster import Stage
from centerclip.errors import CenterClipError
from centerclip.model import KeptTokens
from centerclip.plots.tokens import KeptPatches, centre_sheet, final_clusters, kept_patches, token_map
from centerclip.video import read_frames
from tests.model.tiny import center_clip
from tests.video.clips import make_clip

SIDE = 4  # patches of the tiny model, across


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "numbers.mp4", frames=48, rate=12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    center_clip("B2-4,6").save_pretrained(folder)
    return folder


def run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(show)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def bright(patches: KeptPatches, drawn: Image.Image, frame: int) -> set[tuple[int, int]]:
    """Patches of a frame of the sheet whose inside is as the model sees it."""
    across, cell = len(patches.squares) // len(patches.spans), 56
    row, column = divmod(frame, across)
    square = Image.fromarray(patches.squares[frame]).resize((cell * SIDE,) * 2, Image.Resampling.BICUBIC)
    left, top = 8 + column * (cell * SIDE + 8), row * (cell * SIDE + 40) + 20
    here = np.asarray(drawn.crop((left, top, left + cell * SIDE, top + cell * SIDE)), dtype=int)
    same = np.abs(here - np.asarray(square, dtype=int)).max(axis=2) <= 1
    inside = same.reshape(SIDE, cell, SIDE, cell)[:, 8:-8, :, 8:-8].mean(axis=(1, 3))
    return {(int(r), int(c)) for r, c in np.argwhere(inside > 0.99)}


def test_exactly_the_kept_patches_are_bright(clip: Path) -> None:
    patches = kept_patches(center_clip("B2-4,6"), clip)
    assert patches.places.shape == (4, 6, 3)
    assert patches.tokens.shape == (12, SIDE * SIDE, 32)
    drawn = centre_sheet(patches)
    for frame in range(12):
        places = patches.places[frame // 3]
        kept = {(row, column) for at, row, column in places.tolist() if at == frame}
        assert bright(patches, drawn, frame) == kept


@pytest.mark.parametrize("absent", ["matplotlib", "sklearn"])
def test_without_the_research_extra_a_map_says_what_to_install(
    clip: Path, absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == absent]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)  # what `import` finds where a package is not installed
    with pytest.raises(CenterClipError, match=r"pip install 'centerclip\[research\]'"):
        token_map(kept_patches(center_clip("B2-4,6"), clip).segment(0))


def test_tokens_are_those_that_clustering_chose_from(clip: Path) -> None:
    from centerclip.cluster import kmedoids

    model = center_clip("B2-4,6")
    patches = kept_patches(model, clip)
    ids, assignment = kmedoids(patches.tokens.reshape(4, 3 * SIDE * SIDE, -1), 6)
    assert torch.equal(ids, patches.first.ids)
    assert patches.clusters is not None
    assert torch.equal(assignment.reshape(12, SIDE * SIDE), patches.clusters)
    assert not model.attachment.blocks[1]._forward_hooks.keys() - {h.id for h in model.attachment._handles}


@pytest.mark.parametrize("squash", [False, True])
def test_frames_are_those_that_the_model_encodes(clip: Path, squash: bool) -> None:
    """A model that squashes, as SigLIP does, resizes frames from their full size."""
    model = center_clip("B2-4,6")
    if squash:
        model.preprocess = model.backbone.preprocess = replace(model.preprocess, crop=False)
    whole = read_frames(clip, 12, short_side=None if squash else model.preprocess.size).rgb
    assert np.array_equal(kept_patches(model, clip).squares, model.preprocess.to_square(whole))


def test_clusters_are_followed_through_stages() -> None:
    nowhere = torch.zeros(1, 1, 3)
    first = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]])  # two segments of two clusters
    second = torch.tensor([[0, 1, 2, 0]])  # their four centres, together
    steps = [KeptTokens(Stage(1, 2, 2), nowhere, nowhere, first), KeptTokens(Stage(2, 1, 3), nowhere, nowhere, second)]
    clusters = final_clusters(steps, frames=2)
    assert clusters is not None
    assert clusters.tolist() == [[0, 1, 1, 0], [0, 2, 2, 0]]
    assert final_clusters([steps[0]._replace(assignment=None)], frames=2) is None


def test_pictures_and_json_say_the_same(clip: Path, model: Path, tmp_path: Path) -> None:
    picture, tokens = tmp_path / "new" / "centres.png", tmp_path / "map.png"
    result = run(clip, "--model", model, "-o", picture, "--tsne", tokens, "--segment", 2, "--start", 1, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["clustering"] == "B2-4,6"
    assert [len(segment["kept"]) for segment in content["segments"]] == [6] * 4
    assert (content["segments"][0]["start"], content["segments"][-1]["end"]) == (1.0, 4.0)
    assert Image.open(picture).size == (3 * (224 + 8) + 8, 4 * (224 + 40) + 8)
    assert min(Image.open(tokens).size) > 500
    assert [path.name for path in picture.parent.iterdir()] == ["centres.png"]


@pytest.mark.parametrize(("clustering", "frames"), [("sampling:B1-3,5", 6), ("B1-4,8 B2-2,5", 12)])
def test_other_settings_can_be_drawn(clip: Path, model: Path, tmp_path: Path, clustering: str, frames: int) -> None:
    picture = tmp_path / "centres.png"
    result = run(clip, "--model", model, "--clustering", clustering, "--frames", frames, "-o", picture)
    assert result.exit_code == 0, result.output
    assert f"{clustering} keeps 5 of the " in result.stdout


def test_a_model_without_clustering_takes_that_of_a_new_index(clip: Path, tmp_path: Path) -> None:
    center_clip("none").save_pretrained(tmp_path / "plain")
    result = run(clip, "--model", tmp_path / "plain", "-o", tmp_path / "centres.png", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "kmedoids[proportional]:B2-4,1/3 keeps 16 of the 48 patches of each of 4 segments" in result.stdout


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            ["--clustering", "none"],
            "keeps every patch, so there is nothing to draw. Try B2-4,16",
        ),
        (["--clustering", "token-shift"], "keeps every patch"),
        (["--clustering", "pooling:B2-4,16"], "averages patches"),
        (["--clustering", "B9-4,6"], "the model has 4 blocks"),
        (["--frames", "5"], "cannot be cut into 4 equal segments"),
        (["--segment", "5"], "there are only 4 segments"),
        (["-o", "centres.txt"], "is not the name of an image; it must end in .png, .jpg or .webp"),
    ],
)
def test_wrong_usage_is_2_and_says_what_to_do(clip: Path, model: Path, wrong: list[str], words: str) -> None:
    result = run(clip, "--model", model, *wrong)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_a_file_that_is_no_video_is_1(model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_text("no video")
    result = run(tmp_path / "x.mp4", "--model", model, "-o", tmp_path / "centres.png")
    assert result.exit_code == 1
    assert isinstance(result.exception, CenterClipError)
    assert "this is not a video" in str(result.exception)
    assert not (tmp_path / "centres.png").exists()
