"""Whole runs: what a person gets, and that no work is lost."""

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError

from centerclip.data import load
from centerclip.distributed import Processes
from centerclip.errors import TrainingError
from centerclip.model import CenterCLIP
from centerclip.training import CheckpointError, DivergedError
from centerclip.training import loop as training_loop
from centerclip.training.loop import Splits, build_model, train
from centerclip.training.recipe import read_recipe
from centerclip.training.run import LAST, LOG, PREVIOUS, load_checkpoint, open_run, read_log, run_lock, save_checkpoint

from .commands import Signal, centerclip
from .world import RECIPE, make_world

ALONE = Processes(0, 1, torch.device("cpu"))
EVERY_STEP = "train.checkpoint_minutes=1e-9"


@pytest.fixture(scope="module")
def small_world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("small"), clips=8, frames=4)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(RECIPE)
    return path


def arguments(recipe_file, root, folder, *more):
    return ["train", str(recipe_file), "--root", str(root), "-o", str(folder), "--workers", "0", *more]


def run(recipe_file, root, folder, *more, sent=None, expect=0):
    output = folder.with_name(f"{folder.name}-output")
    done = centerclip(output, *arguments(recipe_file, root, folder, *more), signal=sent)
    assert done.code == expect, done.stderr
    return done


def splits(root):
    return Splits(load("folder", root, "train"), load("folder", root, "val"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, small_world, recipe_file):
    """A run that nobody stopped, with its output."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    return folder, run(recipe_file, small_world, folder)


def weights(folder):
    return (folder / "best" / "model.safetensors").read_bytes()


def last_state(folder):
    state = load_checkpoint(folder)
    return {"model": state["model"], "optimizer": state["optimizer"]["state"]}


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_run_leaves_model_numbers_log_and_picture(undisturbed):
    folder, done = undisturbed
    assert "folder test, 8 videos" in done.stdout
    assert "[" in done.stdout.splitlines()[0]  # the fingerprint of the data
    result = json.loads((folder / "evaluation" / "test" / "evaluation.json").read_text())
    assert {"R1", "R5", "R10", "MdR", "MnR"} <= set(result["metrics"]["t2v"])
    events = [line["event"] for line in read_log(folder)]
    assert events.count("train") == 12  # 16 videos with 2 captions, 8 pairs a step, 3 epochs
    assert events.count("validation") == 3
    assert events[0] == "start"
    assert events[-1] == "end"
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").iterdir())
    assert (folder / "best" / "centerclip.json").exists()
    assert 'clustering = "B2-2,8"' in (folder / "recipe.toml").read_text()


def test_a_finished_run_is_not_trained_again(undisturbed, small_world, recipe_file):
    folder, _ = undisturbed
    before = weights(folder)
    again = run(recipe_file, small_world, folder, "--json")
    assert f"The run in {folder} is finished" in again.stderr
    assert json.loads(again.stdout)["test"]["label"].startswith("folder test, 8 videos")
    assert weights(folder) == before


def test_a_curve_that_could_not_be_drawn_is_not_named(undisturbed, small_world, recipe_file, tmp_path):
    folder, done = undisturbed
    assert f"the learning curve in {folder / 'curve.png'}" in done.stdout
    copy = shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("curve.png"))
    again = run(recipe_file, small_world, copy)
    assert f"The model of the best epoch is in {copy / 'best'}.\n" in again.stdout


def numbers(folder):
    return [{key: value for key, value in line.items() if key != "pairs_per_second"} for line in read_log(folder)]


def test_killed_at_any_moment_it_ends_with_the_same_weights(undisturbed, small_world, recipe_file, tmp_path):
    """In the middle of a step, of writing a file, before files are renamed, and while validating."""
    folder = tmp_path / "killed"
    for function, call in (
        ("centerclip.training.loop.compute_gradients", 3),
        ("os.fsync", 10),
        ("pathlib.Path.replace", 5),
        ("centerclip.training.loop.evaluate", 1),
        ("torch.save", 4),
    ):
        killed = Signal(signal.SIGKILL, function, call)
        run(recipe_file, small_world, folder, "--set", EVERY_STEP, sent=killed, expect=-signal.SIGKILL)
    run(recipe_file, small_world, folder, "--set", EVERY_STEP)
    assert weights(folder) == weights(undisturbed[0])
    assert same(last_state(folder), last_state(undisturbed[0]))
    assert numbers(folder) == numbers(undisturbed[0])


def test_sigterm_saves_and_says_how_to_resume(undisturbed, small_world, recipe_file, tmp_path):
    folder = tmp_path / "stopped"
    in_step_4 = Signal(signal.SIGTERM, "centerclip.training.loop.compute_gradients", 4)
    stopped = run(recipe_file, small_world, folder, sent=in_step_4, expect=130)
    assert "stopped after step 4 of 12; run the same command again to resume" in stopped.stderr
    assert load_checkpoint(folder)["step"] == 4
    run(recipe_file, small_world, folder)
    assert weights(folder) == weights(undisturbed[0])


def test_a_run_resumes_with_a_smaller_micro_batch(undisturbed, small_world, recipe_file, tmp_path):
    """As after running out of memory: it takes less, and the gradient is the same but for rounding."""
    folder = tmp_path / "smaller"
    in_step_6 = Signal(signal.SIGTERM, "centerclip.training.loop.compute_gradients", 6)
    run(recipe_file, small_world, folder, sent=in_step_6, expect=130)
    assert "micro_batch = 0\n" in (folder / "recipe.toml").read_text()
    run(recipe_file, small_world, folder, "--set", "train.micro_batch=2")
    assert "micro_batch = 2\n" in (folder / "recipe.toml").read_text()
    ended, expected = last_state(folder)["model"], last_state(undisturbed[0])["model"]
    assert max((ended[name] - expected[name]).abs().max() for name in expected) < 1e-4  # an epoch changes them by 1e-2
    open_run(folder, read_recipe(recipe_file, ["train.micro_batch=4"]))  # asked of a finished run, it changes nothing
    assert "micro_batch = 2\n" in (folder / "recipe.toml").read_text()


def test_two_processes_train_as_one(undisturbed, small_world, recipe_file, tmp_path):
    """The same global batches, so the same weights up to the order of sums; and the evaluation is shared too."""
    folder = tmp_path / "two"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*torchrun, "-m", "centerclip", *arguments(recipe_file, small_world, folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "src"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "folder test, 8 videos" in done.stdout
    pairs = list(zip(read_log(folder), read_log(undisturbed[0]), strict=True))
    losses = [(two["loss"], one["loss"]) for two, one in pairs if one["event"] == "train"]
    assert [two for two, _ in losses] == pytest.approx([one for _, one in losses], rel=1e-3)
    assert losses[0][0] == pytest.approx(losses[0][1], rel=1e-6)
    assert pairs[1][0]["gradient_norm"] == pytest.approx(pairs[1][1]["gradient_norm"], rel=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_and_resumes(small_world, recipe_file, tmp_path, precision):
    """float16 with its loss scaler, which is in the checkpoint too."""
    recipe = read_recipe(recipe_file, [f"train.precision={precision}", "train.epochs=2", EVERY_STEP])

    def stop_half_way(progress):
        if progress.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, splits(small_world), tmp_path, ALONE, workers=0, on_step=stop_half_way)
    scaler = load_checkpoint(tmp_path)["scaler"]
    assert bool(scaler) == (precision == "float16")
    train(recipe, splits(small_world), tmp_path, ALONE, workers=0)
    losses = [line["loss"] for line in read_log(tmp_path) if line["event"] == "train"]
    assert len(losses) == 8
    assert sum(losses[4:]) < sum(losses[:4])


def test_a_loss_that_is_not_a_number_stops_the_run(small_world, recipe_file, tmp_path, monkeypatch):
    steps = []

    def compute(model, *arguments, **options):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        steps.append(1)
        return torch.tensor(1.0 if len(steps) < 4 else float("nan"))

    monkeypatch.setattr(training_loop, "compute_gradients", compute)
    recipe = read_recipe(recipe_file, [EVERY_STEP])
    with pytest.raises(DivergedError, match=r"the loss of step 4 is nan: .* smaller train\.lr, .* another --output"):
        train(recipe, splits(small_world), tmp_path, ALONE, workers=0)
    assert load_checkpoint(tmp_path)["step"] == 3


def test_weights_that_have_exploded_are_never_saved(small_world, recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, [EVERY_STEP, "train.lr=1e30", "train.warmup=0"])
    for _ in range(2):  # the same command again says the same
        with pytest.raises(DivergedError, match=r"the norm of the weights after step 1 is inf: .* or remove .* first"):
            train(recipe, splits(small_world), tmp_path, ALONE, workers=0)
        assert load_checkpoint(tmp_path) is None


def test_tokens_that_are_not_numbers_stop_the_run_as_a_loss_does(small_world, recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, ["train.lr=1e30", "train.warmup=0"])
    with pytest.raises(DivergedError, match=r"in step 2 tokens contain NaN .*: training has diverged"):
        train(recipe, splits(small_world), tmp_path, ALONE, workers=0)


def test_two_runs_cannot_share_a_folder(small_world, recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, ["train.epochs=1"])
    with (
        run_lock(tmp_path),
        pytest.raises(TrainingError, match=rf"another process is training in {tmp_path}\. .* another --output"),
    ):
        train(recipe, splits(small_world), tmp_path, ALONE, workers=0)
    assert not (tmp_path / LOG).exists()
    train(recipe, splits(small_world), tmp_path, ALONE, workers=0)


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch):
    def no_locks(*_arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with run_lock(tmp_path), run_lock(tmp_path):
        pass


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), SafetensorError("I/O error: No space left on device")]
)
def test_a_full_disk_while_the_best_model_is_saved(small_world, recipe_file, tmp_path, monkeypatch, error):
    def full(model, folder):
        raise error

    monkeypatch.setattr(CenterCLIP, "save_pretrained", full)
    with pytest.raises(CheckpointError, match=r"best cannot be written: the disk is full; .*last\.pt is intact"):
        train(read_recipe(recipe_file, []), splits(small_world), tmp_path, ALONE, workers=0)


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    save_checkpoint(tmp_path, {"step": 1, "big": torch.zeros(20_000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"the disk is full; .*last\.pt is intact\. Free some space"):
            save_checkpoint(tmp_path, {"step": 2, "big": torch.zeros(20_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_checkpoint(tmp_path)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == [LAST]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_kept(tmp_path, damage):
    save_checkpoint(tmp_path, {"step": 1, "numbers": torch.arange(1000)})
    save_checkpoint(tmp_path, {"step": 2, "numbers": torch.arange(1000)})
    path = tmp_path / LAST
    content = bytearray(path.read_bytes())
    place = content.find(torch.arange(500, 504).numpy().tobytes())
    content[place] ^= 1
    path.write_bytes({"cut": content[:-2000], "flip": content, "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=r"last\.pt is damaged .*; remove it to resume from .*previous\.pt"):
        load_checkpoint(tmp_path)
    path.unlink()
    assert load_checkpoint(tmp_path)["step"] == 1
    (tmp_path / PREVIOUS).unlink()
    assert load_checkpoint(tmp_path) is None


def test_a_checkpoint_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "made"),))

    torch.save({"step": 1, "evil": Evil()}, tmp_path / LAST)
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(tmp_path)
    assert not (tmp_path / "made").exists()


def test_choosing_on_the_test_split_is_warned_of(small_world, recipe_file, tmp_path):
    done = run(recipe_file, small_world, tmp_path / "r", "--select-on", "test", "--set", "train.epochs=1")
    assert "Warning: the best epoch is chosen on the test split" in done.stdout


def test_the_published_protocol_from_the_recipe_to_the_saved_model(small_world, recipe_file, tmp_path):
    folder = tmp_path / "r"
    done = run(recipe_file, small_world, folder, "--protocol", "published", "--set", "train.epochs=1", "--json")
    result = json.loads(done.stdout)
    assert result["select"] == result["test"]
    assert "protocol published" in result["test"]["label"]
    assert "Warning: the best epoch is chosen on the test split" in done.stderr
    assert (folder / "recipe.toml").read_text().startswith('protocol = "published"\n')
    assert read_log(folder)[0]["protocol"] == "published"
    assert json.loads((folder / "best" / "centerclip.json").read_text())["protocol"] == "published"
    assert [path.name for path in (folder / "evaluation").iterdir()] == ["test"]
    refused = run(recipe_file, small_world, folder, "--protocol", "clean", "--set", "train.epochs=1", expect=1)
    assert "protocol clean (was published)" in refused.stderr


@pytest.mark.parametrize(("protocol", "drop_tail"), [("published", True), ("clean", False)])
def test_training_frames_and_the_model_follow_the_protocol(
    small_world, recipe_file, tmp_path, monkeypatch, protocol, drop_tail
):
    asked = []

    def stop(benchmark, **settings):
        asked.append(settings["drop_tail"])
        raise KeyboardInterrupt

    monkeypatch.setattr(training_loop, "Loader", stop)
    recipe = read_recipe(recipe_file, [f"protocol={protocol}"])
    with pytest.raises(KeyboardInterrupt):
        train(recipe, splits(small_world), tmp_path, ALONE)
    assert asked == [drop_tail]
    assert build_model(recipe, ["a caption"]).protocol == protocol


def test_gradients_are_divided_before_they_are_clipped_when_published(small_world, recipe_file, tmp_path):
    """The same frames and segments in both protocols: clips have as many frames as the model takes."""

    def stop(progress):
        if progress.step == 2:
            raise KeyboardInterrupt

    norms = {}
    for protocol in ("published", "clean"):
        folder = tmp_path / protocol
        folder.mkdir()
        recipe = read_recipe(recipe_file, [f"protocol={protocol}", "train.paper_gpus=4"])
        with pytest.raises(KeyboardInterrupt):
            train(recipe, splits(small_world), folder, ALONE, workers=0, on_step=stop)
        norms[protocol] = next(line["gradient_norm"] for line in read_log(folder) if line["event"] == "train")
    assert norms["clean"] / 4 <= norms["published"] < norms["clean"] / 2  # logit_scale is not divided


def test_it_learns_with_clustering_on(recipe_file, tmp_path):
    """A CLIP from scratch, on generated clips: recall far above chance (5 of 32 videos)."""
    root = make_world(tmp_path / "world")
    recipe = read_recipe(
        recipe_file, ["train.epochs=8", "train.evaluate_every=8", "train.batch_size=16", "data.draws=2"]
    )
    (tmp_path / "run").mkdir()
    best = train(recipe, splits(root), tmp_path / "run", ALONE)
    assert best["metrics"]["t2v"]["R5"] > 80  # chance: 16
    assert best["metrics"]["v2t"]["R5"] > 80
