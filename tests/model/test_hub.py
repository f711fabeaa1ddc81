"""Models of the Hugging Face hub, with its real client and a hub on this machine."""

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, constants

from centerclip import CenterCLIP
from centerclip.evaluation import retrieval_metrics
from centerclip.model import ModelError, ModelNotFound, NotADualEncoder, hub
from centerclip.model.backbone import open_backbone
from centerclip.model.hub import default_model, find_model, is_hub_name
from centerclip.model.known import DEFAULT_MODEL

from . import tiny
from .hub_server import serve

NAME, COMMIT, OTHER_COMMIT = "some/clip", "a" * 40, "b" * 40
PIXELS = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


# ---- models as they are on the hub --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    tiny.clip().save_pretrained(folder, max_shard_size="200KB")
    tiny.tokenizer().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    return folder


@pytest.fixture(scope="module")
def laion(tmp_path_factory, sharded):
    """One model in four files; only one is needed."""
    folder = tmp_path_factory.mktemp("laion")
    tiny.clip().save_pretrained(folder)
    for name in ("preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(sharded / name, folder)
    for name in ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "pytorch_model.bin"):
        shutil.copy(folder / "model.safetensors", folder / name)
    for name in ("README.md", ".gitattributes", "open_clip_config.json"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture(scope="module")
def openai(tmp_path_factory, sharded):
    """OpenAI's: a pickle, an old config, and a tokenizer in two files."""
    folder = tmp_path_factory.mktemp("openai")
    config = tiny.clip().config.to_dict()
    config["text_config"]["eos_token_id"] = 2  # in all of OpenAI's; the last token is meant
    config |= {"text_config_dict": None, "vision_config_dict": None}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    (folder / "vocab.json").write_text(json.dumps(tiny.tokenizer().get_vocab()))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    torch.save(tiny.clip().state_dict(), folder / "pytorch_model.bin")
    (folder / "tf_model.h5").write_bytes(bytes(1000))
    (folder / "flax_model.msgpack").write_bytes(bytes(1000))
    return folder


@pytest.fixture(scope="module")
def siglip(tmp_path_factory, sharded):
    folder = tmp_path_factory.mktemp("siglip")
    tiny.siglip().save_pretrained(folder)
    for name in ("preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(sharded / name, folder)
    (folder / "special_tokens_map.json").write_text("{}")
    (folder / "spiece.model").write_bytes(b"pieces")
    return folder


@pytest.fixture
def exported(tmp_path, laion):
    """What `centerclip export` writes, beside the weights that it was made from."""
    folder = tmp_path / "exported"
    shutil.copytree(laion, folder)
    for name in ("vision.onnx", "vision.onnx.data", "text.onnx"):
        (folder / name).write_bytes(name.encode() * 1000)
    (folder / "centerclip.json").write_text("{}")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"of another program")
    return folder


# ---- a machine with a hub -----------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch, tmp_path):
    with serve() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub, "RETRY_SECONDS", 0)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        huggingface_hub.close_session()  # it reads the proxies when it is made
        yield server
        huggingface_hub.close_session()


def same_weights(model, other):
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def names(folder):
    return {path.name for path in folder.iterdir()}


def sizes(folder, *files):
    return {name: (folder / name).stat().st_size for name in files}


# ---- what is fetched ----------------------------------------------------------------------------------------


def test_one_set_of_weights_is_fetched(server, laion):
    server.add(NAME, laion)
    folder = find_model(NAME)
    wanted = ("config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json")
    assert names(folder) == set(wanted)
    assert server.fetched() == sizes(laion, *wanted)
    assert same_weights(open_backbone(NAME).model, tiny.clip())


def test_shards_are_those_that_the_index_names(server, sharded, tmp_path):
    remote = shutil.copytree(sharded, tmp_path / "remote")
    (remote / "model-00001-of-00002.safetensors").write_bytes(b"of an earlier upload")
    server.add(NAME, remote)
    folder = find_model(NAME)
    assert {name for name in names(folder) if name.endswith(".safetensors")} == set(SHARDS)
    assert same_weights(open_backbone(NAME).model, tiny.clip())


def test_openai_layout_opens_and_gives_the_same_vectors(server, openai):
    server.add(NAME, openai)
    model = CenterCLIP.from_pretrained(NAME, device="cpu")
    assert set(server.fetched()) == names(openai) - {"tf_model.h5", "flax_model.msgpack"}
    sentences = ["a dog runs", "two cats, one of which sleeps"]
    expected = tiny.center_clip().encode_text(sentences)
    torch.testing.assert_close(model.encode_text(sentences), expected, atol=1e-6, rtol=0)


def test_siglip_layout(server, siglip):
    server.add(NAME, siglip)
    assert names(find_model(NAME)) == names(siglip)
    assert same_weights(open_backbone(NAME).model, tiny.siglip())


def test_pickled_weights_without_torch(server, openai, laion, monkeypatch):
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    server.add(NAME, openai)
    with pytest.raises(ModelError, match=r"only \.bin weights.*pip install 'centerclip\[torch\]'.*--model laion/CLIP"):
        find_model(NAME)
    assert set(server.fetched()) == {"config.json"}
    server.add("other/clip", laion)
    assert "model.safetensors" in names(find_model("other/clip"))


def test_weights_of_another_library_alone(server, laion, tmp_path):
    remote = shutil.copytree(laion, tmp_path / "remote")
    (remote / "model.safetensors").unlink()
    (remote / "pytorch_model.bin").unlink()
    server.add(NAME, remote)
    with pytest.raises(ModelError, match=r"no weights that can be opened"):
        find_model(NAME)


def test_a_model_of_another_kind_is_refused_before_its_weights_arrive(server, laion, tmp_path):
    remote = shutil.copytree(laion, tmp_path / "remote")
    (remote / "config.json").write_text('{"model_type": "llama"}')
    server.add(NAME, remote)
    with pytest.raises(NotADualEncoder, match="llama"):
        find_model(NAME)
    assert set(server.fetched()) == {"config.json"}


def test_the_exported_form_is_fetched_in_place_of_the_weights(server, exported):
    server.add(NAME, exported)
    fetched = names(find_model(NAME))
    assert fetched >= {"vision.onnx", "vision.onnx.data", "text.onnx", "centerclip.json"}
    assert not fetched & {"model.safetensors", "onnx", "model.onnx"}
    assert "model.safetensors" in names(find_model(NAME, exported=False))  # for torch


def test_a_part_of_the_exported_form_is_not_taken_for_a_model(server, exported):
    server.add(NAME, exported, revision="v1")
    server.damaged.add("vision.onnx.data")
    for _ in range(2):  # a commit is found in the cache without a branch that names it
        with pytest.raises(ModelError, match="did not arrive"):
            find_model(NAME, COMMIT)
    server.damaged.clear()
    assert "vision.onnx.data" in names(find_model(NAME, COMMIT))


# ---- how it is fetched --------------------------------------------------------------------------------------


def test_progress_ends_with_all_bytes(server, laion):
    server.add(NAME, laion)
    steps = []
    find_model(NAME, on_progress=lambda done, total: steps.append((done, total)))
    total = sum(server.fetched().values()) - (laion / "config.json").stat().st_size  # looked at beforehand
    assert {each for _, each in steps} == {total}
    assert steps == sorted(steps)
    assert steps[-1][0] == total


def test_a_program_may_show_every_download(server, laion, monkeypatch):
    monkeypatch.setattr(hub, "_progress", [])
    steps = []

    @contextmanager
    def show():
        yield lambda done, total: steps.append(done)
        steps.append("end")

    hub.show_downloads(show)
    server.add(NAME, laion)
    open_backbone(NAME)
    assert steps[-1] == "end"
    assert len(steps) > 2
    shown = len(steps)
    open_backbone(NAME)  # nothing is fetched
    assert len(steps) == shown


@pytest.mark.parametrize("how", ["cuts", "stalls"])
def test_a_cut_download_is_resumed(server, laion, monkeypatch, how):
    monkeypatch.setattr(hub, "HUB_SECONDS", 2)
    server.add(NAME, laion)
    size = (laion / "model.safetensors").stat().st_size
    getattr(server, how)["model.safetensors"] = size // 2
    assert (find_model(NAME) / "model.safetensors").read_bytes() == (laion / "model.safetensors").read_bytes()
    assert [each[1:] for each in server.gets if each[0] == "model.safetensors"] == [
        (0, size // 2),
        (size // 2, size - size // 2),
    ]


def test_a_later_run_resumes_too(server, laion):
    server.add(NAME, laion)
    server.cuts["model.safetensors"] = 1000
    size = (laion / "model.safetensors").stat().st_size

    def break_down(done, total):
        if done > total - size:  # the weights come last
            server.refusals["model.safetensors"] = (503, {})

    with pytest.raises(ModelNotFound, match=r"503.*what has arrived is kept"):
        find_model(NAME, on_progress=break_down)
    server.refusals.clear()
    find_model(NAME)
    assert server.fetched()["model.safetensors"] == size
    assert [start for name, start, _ in server.gets if name == "model.safetensors"] == [0, 1000]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_what_did_not_arrive_as_it_was_sent_is_not_kept(server, laion, file):
    server.add(NAME, laion)
    server.damaged.add(file)
    with pytest.raises(ModelError, match=rf"{file} did not arrive"):
        find_model(NAME)
    server.damaged.clear()
    assert same_weights(open_backbone(NAME).model, tiny.clip())


def test_two_at_once_fetch_it_once(server, laion):
    server.add(NAME, laion)
    found = []
    threads = [threading.Thread(target=lambda: found.append(find_model(NAME))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 2
    assert server.fetched()["model.safetensors"] == (laion / "model.safetensors").stat().st_size


def test_where_links_cannot_be_made_files_stand_in_their_place(server, laion, monkeypatch):
    def refuse(*_):
        raise OSError("a required privilege is not held by the client")

    monkeypatch.setattr(hub.Path, "symlink_to", refuse)
    server.add(NAME, laion)
    assert not (find_model(NAME) / "model.safetensors").is_symlink()
    server.refusals["/clip"] = (503, {})
    assert same_weights(open_backbone(NAME).model, tiny.clip())


def test_other_programs_find_what_was_fetched(server, laion):
    server.add(NAME, laion)
    folder = find_model(NAME)
    assert huggingface_hub.try_to_load_from_cache(NAME, "model.safetensors") == str(folder / "model.safetensors")
    [cached] = huggingface_hub.scan_cache_dir(constants.HF_HUB_CACHE).repos
    assert cached.size_on_disk == sum(server.fetched().values())


def test_a_token_stays_with_the_hub(server, laion, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.add(NAME, laion)
    find_model(NAME)
    assert server.cdn_headers
    assert not any("hf_secret" in str(headers) for headers in server.cdn_headers)


@pytest.mark.parametrize("name", ["../../outside", "/outside", "a/b.safetensors", 5])
def test_an_index_cannot_name_files_outside(server, sharded, tmp_path, name):
    remote = shutil.copytree(sharded, tmp_path / "remote")
    (remote / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight": name}}))
    server.add(NAME, remote)
    with pytest.raises(ModelError, match="does not name the files"):
        find_model(NAME)


def test_the_environment_chooses_the_hub_and_torch_is_not_needed(server, laion, tmp_path):
    server.add(NAME, laion)
    code = "import sys; from centerclip.model.hub import find_model; print(find_model('some/clip'))"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; assert not {{'torch', 'transformers', 'onnxruntime'}} & set(sys.modules)"],
        env=os.environ | {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert run.stdout.strip() == str(tmp_path / "home" / "hub" / "models--some--clip" / "snapshots" / COMMIT)


# ---- the cache ----------------------------------------------------------------------------------------------


def offline(server):
    server.models.clear()
    server.refusals["/"] = server.refusals["clip"] = server.refusals["revision/v2.0"] = (503, {})


def test_a_model_that_was_fetched_opens_without_a_connection(server, sharded):
    server.add(NAME, sharded)
    first = find_model(NAME)
    offline(server)
    assert find_model(NAME) == first
    assert open_backbone(NAME).preprocess.mean == (0.5, 0.5, 0.5)


LACKING = {
    "preprocessor": (["preprocessor_config.json"], "preprocessor_config.json"),
    "tokenizer": (["tokenizer.json"], "tokenizer.json"),
    "config": (["config.json"], "config.json"),
    "a shard": ([SHARDS[1]], SHARDS[1]),
    "all weights": ([*SHARDS, "model.safetensors.index.json"], "model.safetensors"),
}


@pytest.mark.parametrize(("lacking", "named"), LACKING.values(), ids=LACKING)
def test_what_the_cache_lacks_is_named_and_fetched(server, sharded, lacking, named, monkeypatch):
    server.add(NAME, sharded)
    folder = find_model(NAME)
    for name in lacking:
        (folder / name).resolve().unlink()  # leaves a link to nothing
    server.gets.clear()
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        sentence = rf"only partly on this machine \(missing: {named}\).*HF_HUB_OFFLINE is set.*--model (small|demo)"
        with pytest.raises(ModelNotFound, match=sentence):
            find_model(NAME)
    assert find_model(NAME) == folder
    assert set(server.fetched()) == set(lacking)


def test_half_a_tokenizer_is_noticed(server, openai):
    server.add(NAME, openai)
    (find_model(NAME) / "merges.txt").unlink()
    offline(server)
    with pytest.raises(ModelNotFound, match=r"missing: merges\.txt"):
        find_model(NAME)


def test_a_revision_is_pinned_and_kept_in_the_name(server, laion, siglip):
    server.add(NAME, laion)
    server.add(NAME, siglip, OTHER_COMMIT, "v1.0")
    pinned = find_model(NAME, "v1.0")
    assert pinned.name == OTHER_COMMIT
    assert find_model(NAME).name == COMMIT
    offline(server)
    assert find_model(f"{NAME}@v1.0") == find_model(NAME, OTHER_COMMIT) == pinned
    with pytest.raises(ModelNotFound, match=r'"some/clip" at revision "v2\.0" is not on this machine'):
        find_model(NAME, "v2.0")
    with pytest.raises(ModelError, match="two revisions"):
        find_model(f"{NAME}@v1.0", "v2.0")


@pytest.mark.parametrize("revision", ["../../main", "/etc/passwd", "a b", ""])
def test_a_revision_is_no_path(server, laion, revision):
    server.add(NAME, laion)
    with pytest.raises(ModelError, match="cannot be a revision"):
        find_model(NAME, revision)


def test_a_revision_of_local_files_is_refused(tmp_path):
    for name in (tmp_path, "demo"):
        with pytest.raises(ModelError, match="has no revisions"):
            open_backbone(name, revision="main")


def test_names(tmp_path, monkeypatch, server, laion):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(laion, tmp_path / "some" / "clip@v1")
    assert is_hub_name("some/other")
    assert is_hub_name("some/other@v1")
    assert not is_hub_name("some/clip@v1")
    assert not is_hub_name("some/model.pt")
    assert find_model("some/clip@v1") == hub.Path("some/clip@v1")
    assert (find_model("demo") / "config.json").is_file()
    assert (find_model("small") / "config.json").is_file()
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        find_model(tmp_path)
    with pytest.raises(ModelNotFound, match="called owner/name"):
        find_model("clip")


# ---- the model of a new index -------------------------------------------------------------------------------


def test_the_default_is_taken_where_the_hub_answers_or_the_cache_has_it(server, laion):
    server.add(DEFAULT_MODEL, laion)
    assert default_model() == (DEFAULT_MODEL, "")
    find_model(DEFAULT_MODEL)
    server.silent = True  # nobody is asked
    assert default_model() == (DEFAULT_MODEL, "")


def test_the_small_model_is_taken_where_the_hub_cannot_be_reached(server, laion, monkeypatch):
    name, reason = default_model()  # it answers, and has no such model
    assert (name, bool(reason)) == ("small", True)
    monkeypatch.setattr(hub, "DEFAULT_SECONDS", 0.3)
    server.add(DEFAULT_MODEL, laion)
    server.silent = True
    assert default_model() in (("small", "no answer within 0.3 s"), ("small", "timed out"))  # whichever comes first
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert default_model() == ("small", "HF_HUB_OFFLINE is set")
    offline(server)
    assert default_model()[0] == "small"


# ---- what is said -------------------------------------------------------------------------------------------

RATE = {"RateLimit": '"api";r=0;t=55'}
BAD_TOKEN = {"X-Error-Message": "Invalid credentials in Authorization header"}
REFUSALS = {
    "gated": ("config.json", 403, {"X-Error-Code": "GatedRepo"}, r"accept its terms.*127\.0\.0\.1.*`hf auth login`"),
    "private": ("/clip", 401, {"X-Error-Code": "RepoNotFound"}, "no such model.*a private one needs `hf auth login`"),
    "unknown": ("/clip", 404, {"X-Error-Code": "RepoNotFound"}, "no such model on the Hugging Face hub"),
    "bad token": ("/clip", 401, BAD_TOKEN, r"refuses access \(401\).*`hf auth login`"),
    "forbidden": ("/clip", 403, {}, r"refuses access \(403\).*`hf auth login`"),
    "too many": ("/clip", 429, RATE, r"too many requests.*Wait 55 seconds.*`hf auth login`"),
    "too many, of a file": ("config.json", 429, {"Retry-After": "7"}, r"Wait 7 seconds"),
    "down": ("/clip", 502, {}, "502.*Try again later"),
}


@pytest.mark.parametrize(("path", "status", "headers", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_say_what_to_type(server, laion, path, status, headers, sentence):
    server.add(NAME, laion)
    server.refusals[path] = (status, headers)
    with pytest.raises(ModelNotFound, match=sentence) as raised:
        find_model(NAME)
    assert "\n" not in str(raised.value)


def test_unknown_revision(server, laion):
    server.add(NAME, laion)
    with pytest.raises(ModelNotFound, match='no revision "v9" of "some/clip"'):
        find_model(NAME, "v9")


def test_a_hub_that_never_answers(server, monkeypatch):
    monkeypatch.setattr(hub, "HUB_SECONDS", 0.2)
    server.silent = True
    with pytest.raises(ModelNotFound, match=r'"some/clip" is not on this machine.*timed out.*--model my-folder'):
        find_model(NAME)


def test_no_hub_at_all(server):
    server.server_close()
    with pytest.raises(ModelNotFound, match=r'"some/clip" is not on this machine.*refused.*--model my-folder'):
        find_model(NAME)


def test_a_full_disk_is_noticed_before_the_weights_arrive(server, laion, monkeypatch):
    server.add(NAME, laion)
    usage = shutil.disk_usage(laion)._replace(free=5000)
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelError, match=r"disk is full.*MB are needed, 0\.0 MB are free.*HF_HOME"):
        find_model(NAME)
    assert set(server.fetched()) == {"config.json"}


def test_a_cache_of_somebody_else(server, laion, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", constants.HF_HUB_CACHE)

    server.add(NAME, laion)
    monkeypatch.setattr(hub.Path, "mkdir", refuse)
    with pytest.raises(ModelError, match=r"models--some--clip cannot be written \(Permission denied\); set HF_HOME"):
        find_model(NAME)


def test_a_file_that_never_arrives_whole(server, laion):
    server.add(NAME, laion)
    server.short.add("model.safetensors")
    with pytest.raises(ModelError, match="shorter than the hub says"):
        find_model(NAME)


def test_something_that_is_not_a_hub(server, laion):
    server.add(NAME, laion, commit="../../../outside")
    with pytest.raises(ModelError, match="check HF_ENDPOINT"):
        find_model(NAME)


# ---- uploading ----------------------------------------------------------------------------------------------


def test_a_model_is_uploaded_with_a_card_and_opens_from_the_hub(server, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    model = tiny.center_clip("B2-4,9")
    ranks = retrieval_metrics(np.eye(4)[:, ::-1] + np.eye(4) / 2)

    class Result:
        benchmark, metrics = "msrvtt", ranks

        def label(self):
            return "msrvtt test, 4 videos"

    address = model.push_to_hub(
        "some/uploaded", private=True, license="mit", results=[Result()], note="Trained on nothing.", revision=None
    )
    assert address == f"{server.url}/some/uploaded/commit/{'c' * 40}"
    assert "private" in str(server.created["some/uploaded"])
    again = CenterCLIP.from_pretrained("some/uploaded", device="cpu")
    assert again.fingerprint() == model.fingerprint()
    assert str(again.clustering) == "B2-4,9"
    card = ModelCard((server.uploads / "some/uploaded/main/README.md").read_text(encoding="utf-8"))
    assert card.data.license == "mit"
    assert card.data.library_name == "centerclip"
    assert {each.metric_type: each.metric_value for each in card.data.eval_results} == {
        "recall_at_1": 0.0, "recall_at_5": 100.0, "recall_at_10": 100.0,
    }  # fmt: skip
    assert "Trained on nothing." in card.text
    assert 'CenterCLIP.from_pretrained("some/uploaded")' in card.text
    assert "| msrvtt test, 4 videos | text to video | 0.0 | 100.0 | 100.0 |" in card.text


def test_an_upload_that_is_refused_says_what_to_do(server, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(ModelError, match="write owner/name"):
        tiny.center_clip().push_to_hub("no owner")
    server.refusals["/api/repos/create"] = (403, {})
    with pytest.raises(ModelError, match=r'"some/uploaded" could not be uploaded: .*403.*hf auth login'):
        tiny.center_clip().push_to_hub("some/uploaded")
