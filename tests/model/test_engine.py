"""ONNX Runtime gives the vectors of torch, in float32 and, where that is close enough, in 8 bits."""

import json
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from centerclip import CenterCLIP
from centerclip.errors import MissingExtra, ModelError, SettingError
from centerclip.model import conversion, engine
from centerclip.model.backbone import Backbone
from centerclip.model.engine import OnnxEncoder, export_model, open_encoder
from centerclip.model.precision import Closeness, choose, compare, compatible, processor, told
from centerclip.model.preprocess import Preprocess

from . import tiny

TEXTS = ["a dog", "Two men, one of them old, play chess!", "&amp; ünïcode " + "and so on " * 30]
KINDS = {"clip": tiny.clip, "siglip": tiny.siglip, "dual": tiny.dual_encoder}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CENTERCLIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnx"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A torch model of each kind, and the folder that it was saved to."""
    saved = {}
    for kind, make in KINDS.items():
        folder = tmp_path_factory.mktemp("models") / kind
        CenterCLIP(Backbone(make(), tiny.tokenizer(), Preprocess(size=tiny.SIDE)), frames=12).save_pretrained(folder)
        saved[kind] = (CenterCLIP.from_pretrained(folder, device="cpu"), folder)
    return saved


def frames(count=3, real=12):
    rgb = tiny.videos(count)
    rgb = rgb if isinstance(rgb, np.ndarray) else rgb.numpy()
    mask = np.ones(rgb.shape[:2], dtype=bool)
    mask[-1, real:] = False
    return rgb, mask


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_torch(models, kind):
    model, folder = models[kind]
    encoder = OnnxEncoder(folder)
    rgb, mask = frames(real=5)
    expected, counts = model.encode_windows(rgb, mask)
    vectors, real = encoder.encode_windows(rgb, mask)
    assert np.abs(vectors - expected).max() < 1e-5
    assert real.tolist() == counts.tolist()
    assert np.abs(encoder.encode_sentences(TEXTS) - model.encode_sentences(TEXTS)).max() < 1e-5
    assert encoder.encode_sentences([]).shape == (0, model.width)
    assert encoder.fingerprint() == model.fingerprint()
    for name in ("width", "blocks", "frames", "segments", "preprocess", "protocol"):
        assert getattr(encoder, name) == getattr(model, name), name
    assert str(encoder.clustering) == str(model.clustering)


SETTINGS = (
    "B2-4,9",
    "kmedoids[proportional]:B2-4,9",
    "spectral[sigma=median]:B1-3,8",
    "means:B1-6,12 B3-2,7",
    "tome:B2-4,9",
    "dpcknn[proportional]:B2-4,9",
    "kkz:B2-4,1/3",
    "pooling:B2-4,16",
    "sampling:B2-4,9",
    "random:B2-4,9",
)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_with_clustering(models, kind):
    """Where both keep the same centres, and they nearly always do, the vectors are equal."""
    model, folder = models[kind]
    encoder = OnnxEncoder(folder)
    rgb, mask = frames()
    equal = []
    for setting in SETTINGS:
        found = []
        for each in (model, encoder):
            each.set_clustering(setting)
            with each.record_centres() as ids:
                found.append((each.encode_windows(rgb, mask)[0], ids))
        (expected, theirs), (vectors, ours) = found
        assert vectors.shape == expected.shape == (3, encoder.segments, encoder.width)
        assert len(ours) == (0 if setting.startswith("pooling") else len(encoder.clustering.stages))
        same = np.ones(vectors.shape[0], dtype=bool)
        for one, other in zip(ours, theirs, strict=True):
            equal.append((one == other).mean())
            same &= (one == other).reshape(len(same), -1).all(axis=1)
        assert np.abs(vectors - expected)[same].max(initial=0) < 1e-4, setting
    model.set_clustering("none")
    assert np.mean(equal) > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_segments_of_any_length_are_those_of_torch_and_whole_ones_those_of_a_window(models, kind):
    model, folder = models[kind]
    encoder = OnnxEncoder(folder)
    rgb, mask = frames(1)
    for setting in ("kmedoids[proportional]:B2-4,1/3", "B2-4,20", "none"):
        for each in (model, encoder):
            each.set_clustering(setting)
        most = 12 // encoder.segments
        whole = encoder.encode_segments(rgb[0], [most] * encoder.segments)
        assert np.allclose(whole, encoder.encode_windows(rgb, mask)[0][0], atol=1e-5)
        lengths = [min(length, most) for length in (1, 3, 2, 1)]
        some = rgb[0, : sum(lengths)]
        vectors = encoder.encode_segments(some, lengths)
        assert np.allclose(vectors, model.encode_segments(some, lengths), atol=1e-4)
        assert np.allclose(vectors[1:2], encoder.encode_segments(some[1 : 1 + lengths[1]], lengths[1:2]), atol=1e-5)
    model.set_clustering("none")


def test_the_protocol_says_which_segments_count(models, tmp_path):
    folder = tmp_path / "published"
    shutil.copytree(models["clip"][1], folder)
    settings = json.loads((folder / "centerclip.json").read_text())
    (folder / "centerclip.json").write_text(json.dumps({**settings, "protocol": "published", "clustering": "B2-4,9"}))
    rgb, mask = frames(real=5)
    counts = OnnxEncoder(folder).encode_windows(rgb, mask)[1]
    assert counts.tolist() == [[True] * 4, [True] * 4, [True, False, False, False]]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_vector_does_not_depend_on_the_batch(models, precision, monkeypatch):
    monkeypatch.setattr(engine, "compare", lambda *_: closeness())
    encoder = OnnxEncoder(models["clip"][1], clustering="B2-4,9", precision=precision)
    rgb, mask = frames()
    together = encoder.encode_windows(rgb, mask)[0]
    alone = np.concatenate([encoder.encode_windows(rgb[[i]], mask[[i]])[0] for i in range(3)])
    assert np.array_equal(together, alone)
    if precision == "int8":
        apart = np.concatenate([encoder.encode_sentences([text]) for text in TEXTS])
        assert np.array_equal(encoder.encode_sentences(TEXTS), apart)


def test_a_setting_that_does_not_fit_changes_nothing(models):
    encoder = OnnxEncoder(models["clip"][1], clustering="B2-4,9")
    for setting in ("B9-4,9", "token-shift"):
        with pytest.raises(SettingError):
            encoder.set_clustering(setting)
    assert str(encoder.clustering) == "B2-4,9"
    with pytest.raises(ModelError, match=r"expected uint8 \[V, 12, 32, 32, 3\]"):
        encoder.encode_windows(np.zeros((1, 3, 32, 32, 3), dtype=np.uint8), np.ones((1, 3), dtype=bool))


# ---- precision ----------------------------------------------------------------------------------------------


def closeness(**values):
    good = {"cosine": 0.999, "text_cosine": 0.999, "order": 0.99, "centres": 0.9, "speed": 2.0, "text_speed": 2.0}
    good["processor"] = processor()
    return Closeness(precision="int8", **{**good, **values})


def test_8_bits_are_measured_once_and_kept_beside_the_model(models, cache, monkeypatch):
    monkeypatch.setattr(engine, "SMALL_BYTES", 0)
    monkeypatch.setattr("centerclip.model.precision.MIN_SPEED", 0.0)  # a tiny model gains nothing
    monkeypatch.setattr("centerclip.model.precision.MIN_ORDER", -1.0)  # nor do its videos differ
    model, folder = models["dual"]
    encoder = OnnxEncoder(folder, precision="auto")
    measured = encoder.describe()["measured"]["int8"]
    assert encoder.precision == "int8"
    assert measured["cosine"] > 0.99
    assert measured["text_cosine"] > 0.99
    rgb, mask = frames()
    assert (encoder.encode_windows(rgb, mask)[0] * model.encode_windows(rgb, mask)[0]).sum(-1).mean() > 0.99
    (report,) = cache.glob("*/precision.json")
    assert json.loads(report.read_text()) == {"int8": measured}
    monkeypatch.setattr(engine, "compare", lambda *_: pytest.fail("measured again"))
    assert OnnxEncoder(folder, precision="auto").precision == "int8"
    assert OnnxEncoder(folder, precision="float32").precision == "float32"


@pytest.mark.parametrize(("least", "chosen"), [(0.99, "bfloat16"), (1.1, "float32")])
def test_bfloat16_is_measured_too_where_torch_runs_the_model(models, least, chosen, monkeypatch):
    monkeypatch.setattr(engine, "SMALL_BYTES", 0)
    monkeypatch.setattr(engine, "processor_flags", lambda: {"avx512_bf16"})
    for name, value in (("MIN_SPEED", 0.0), ("MIN_ORDER", -1.0), ("MIN_COSINE", {"bfloat16": least})):
        monkeypatch.setattr(f"centerclip.model.precision.{name}", value)
    model, folder = models["clip"]
    encoder = open_encoder(folder, clustering="token-shift", device="cpu", engine="torch")
    assert (encoder.engine, encoder.precision, str(encoder.clustering)) == ("torch", chosen, "token-shift")
    assert encoder.describe()["measured"]["bfloat16"]["cosine"] > 0.99
    assert encoder.fingerprint() == model.fingerprint()
    assert compatible("float32", "bfloat16", encoder.report) == (chosen == "bfloat16")
    monkeypatch.setattr(engine, "compare", lambda *_: pytest.fail("measured again"))
    assert open_encoder(folder, device="cpu", engine="torch").precision == chosen


def test_a_broken_quantisation_is_refused(models, monkeypatch):
    monkeypatch.setattr(engine, "SMALL_BYTES", 0)
    write = conversion._write_int8

    def write_broken(*inputs):
        line, scratch = write(*inputs), inputs[1]
        data = scratch / "vision-int8.onnx.data"
        data.write_bytes(np.random.default_rng(0).integers(0, 60, data.stat().st_size, dtype=np.uint8).tobytes())
        return line

    monkeypatch.setattr(conversion, "_write_int8", write_broken)
    folder = models["clip"][1]
    assert OnnxEncoder(folder, precision="auto").precision == "float32"
    with pytest.raises(ModelError, match=r"int8 is not close enough to float32 .*less than 0\.99"):
        OnnxEncoder(folder, precision="int8")


def test_a_small_model_stays_in_float32_without_being_measured(models, monkeypatch):
    monkeypatch.setattr(engine, "compare", lambda *_: pytest.fail("measured"))
    assert OnnxEncoder(models["clip"][1], precision="auto").precision == "float32"


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ({}, "int8"),
        ({"cosine": 0.98}, "float32"),
        ({"cosine": float("nan")}, "float32"),
        ({"text_cosine": 0.98}, "float32"),
        ({"order": 0.9}, "float32"),
        ({"centres": 0.4}, "float32"),
        ({"speed": 1.0}, "float32"),
        ({"processor": "another"}, "float32"),
    ],
)
def test_the_fastest_precision_that_is_close_is_chosen(values, chosen):
    measured = closeness(**values)
    assert choose({"int8": vars(measured)}, ["int8"]) == chosen
    assert choose({}, ["int8"]) == choose({"int8": "?"}, ["int8"]) == "float32"
    (sentence,) = told({"int8": vars(closeness()), "bfloat16": "?"})
    assert "int8 on" in sentence
    assert "90% of the centres" in sentence


def test_precisions_that_are_close_to_float32_may_be_mixed():
    report = {"int8": vars(closeness())}
    assert compatible("float32", "int8", report)
    assert compatible("int8", "bfloat16", report)
    assert compatible("int8", "int8", {})
    assert not compatible("float32", "int8", {"int8": vars(closeness(cosine=0.9))})
    assert not compatible("int8", "float32", {})


def test_comparing_a_model_with_itself_finds_no_difference(models):
    encoders = [OnnxEncoder(models["clip"][1], precision="float32") for _ in range(2)]
    encoders[1].precision = "float32"
    measured = compare(*encoders, "B2-2,1/3")
    assert measured.cosine == pytest.approx(1, abs=1e-5)
    assert measured.order == pytest.approx(1, abs=1e-5)
    assert measured.centres == 1


# ---- conversion ---------------------------------------------------------------------------------------------


def test_several_at_once_convert_a_model_once(models, monkeypatch):
    written = []
    write = conversion._write_float32
    monkeypatch.setattr(conversion, "_write_float32", lambda *a: (written.append(1), write(*a))[1])
    forms = []
    threads = [threading.Thread(target=lambda: forms.append(conversion.convert(models["clip"][1]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(forms) == 4
    assert len({str(form.folder) for form in forms}) == 1
    assert len(written) == 1


def test_what_a_killed_conversion_left_is_not_used(models, cache, monkeypatch):
    folder = models["clip"][1]
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "write_atomic", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            conversion.convert(folder)
    assert conversion.find_form(folder) is None
    (cache / ".killed.part").mkdir()
    form = conversion.convert(folder)
    assert not (cache / ".killed.part").exists()
    data = form.folder / "vision.onnx.data"
    data.write_bytes(data.read_bytes()[:-4096])
    assert conversion.find_form(folder) is None
    assert OnnxEncoder(folder).encode_sentences(["a dog"]).shape == (1, 24)
    assert data.stat().st_size == form.files["float32"]["vision.onnx.data"]


def test_another_version_of_a_model_replaces_the_one_before(models, cache, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(models["clip"][1], folder)
    first = OnnxEncoder(folder)
    model = CenterCLIP(Backbone(tiny.clip(seed=1), tiny.tokenizer(), Preprocess(size=tiny.SIDE)))
    model.save_pretrained(folder)
    second = OnnxEncoder(folder)
    assert second.fingerprint() == model.fingerprint() != first.fingerprint()
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_a_cache_that_cannot_be_written_says_so(models, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CENTERCLIP_CACHE", str(tmp_path / "file"))
    with pytest.raises((ModelError, OSError), match="file"):
        OnnxEncoder(models["clip"][1])


# ---- export -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_exported_model_opens_without_its_source(models, tmp_path, precision, monkeypatch):
    monkeypatch.setattr(engine, "compare", lambda *_: closeness())
    source, target = tmp_path / "source", tmp_path / "exported"
    shutil.copytree(models["dual"][1], source)
    before = OnnxEncoder(source, clustering="B2-4,9", precision=precision, portable=True)
    rgb, mask = frames()
    expected, sentences = before.encode_windows(rgb, mask)[0], before.encode_sentences(TEXTS)
    exported = export_model(str(source), target, precision=precision)
    assert exported["precisions"] == [precision]
    assert {path.name for path in target.iterdir()} == set(exported["files"])
    shutil.rmtree(source)
    monkeypatch.setenv("CENTERCLIP_CACHE", str(tmp_path / "other"))
    encoder = open_encoder(target, clustering="B2-4,9", engine="onnxruntime")
    assert encoder.precision == precision
    assert encoder.fingerprint() == before.fingerprint()
    assert np.array_equal(encoder.encode_windows(rgb, mask)[0], expected)
    assert np.array_equal(encoder.encode_sentences(TEXTS), sentences)
    other = {"float32": "int8", "int8": "float32"}[precision]
    with pytest.raises(ModelError, match="8-bit weights"):
        OnnxEncoder(target, precision=other)
    export_model(target, tmp_path / "copy", precision=precision)
    assert OnnxEncoder(tmp_path / "copy").fingerprint() == before.fingerprint()


def test_an_export_replaces_nothing_but_an_export(models, tmp_path):
    folder = models["clip"][1]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    for target in (tmp_path / "mine", folder, tmp_path / "mine" / "thesis.tex"):
        with pytest.raises(ModelError, match="-o"):
            export_model(str(folder), target, precision="float32")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    for _ in range(2):
        export_model(str(folder), tmp_path / "new", precision="float32")
    with pytest.raises(ModelError, match="-o"):
        export_model(tmp_path / "new", tmp_path / "new")


def test_an_export_in_a_hub_cache_is_a_folder_of_links(models, tmp_path):
    export_model(str(models["clip"][1]), tmp_path / "blobs", precision="float32")
    snapshot = tmp_path / "snapshots" / "commit"
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted((tmp_path / "blobs").iterdir())):
        blob = path.rename(path.with_name(f"blob{number}"))
        (snapshot / path.name).symlink_to(blob)
    encoder = OnnxEncoder(snapshot, clustering="B2-4,9")
    rgb, mask = frames()
    assert np.isfinite(encoder.encode_windows(rgb, mask)[0]).all()
    assert np.isfinite(encoder.encode_sentences(TEXTS)).all()


def test_without_torch_and_the_source(models, tmp_path):
    export_model(str(models["clip"][1]), tmp_path / "exported", precision="float32")
    program = """if True:
        import sys
        import numpy as np
        for name in ("torch", "transformers", "safetensors"):
            sys.modules[name] = None
        from centerclip.model.engine import open_encoder
        encoder = open_encoder(sys.argv[1], clustering="B2-4,9")
        encoder.encode_sentences(["a dog"])
        assert "onnx" not in sys.modules and "av" not in sys.modules
        encoder.encode_windows(np.zeros((1, 12, 32, 32, 3), np.uint8), np.ones((1, 12), bool))
    """
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "exported")], check=True)


# ---- which engine -------------------------------------------------------------------------------------------


def without_torch(monkeypatch):
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)


def test_onnxruntime_is_taken_where_it_can_run_the_model(models):
    folder = models["clip"][1]
    assert open_encoder(folder, device="cpu").engine == "onnxruntime"
    assert open_encoder(folder, device="cpu", clustering="token-shift").engine == "torch"
    assert open_encoder(folder, device="cpu", engine="torch").engine == "torch"
    encoder = open_encoder(models["dual"][1], device="cpu", precision="bfloat16")
    assert (encoder.engine, encoder.precision) == ("torch", "bfloat16")
    rgb, mask = frames()
    exact = models["dual"][0].encode_windows(rgb, mask)[0]
    assert (encoder.encode_windows(rgb, mask)[0] * exact).sum(-1).mean() > 0.999
    assert encoder.fingerprint() == models["dual"][0].fingerprint()
    with pytest.raises(ModelError, match='"token-shift" is for torch alone'):
        open_encoder(folder, clustering="token-shift", engine="onnxruntime")
    with pytest.raises(ModelError, match="int8 runs on ONNX Runtime alone"):
        open_encoder(folder, clustering="token-shift", precision="int8", device="cpu")


def test_what_needs_torch_says_what_to_type(models, tmp_path, monkeypatch):
    without_torch(monkeypatch)
    folder = models["clip"][1]
    assert open_encoder(folder).engine == "onnxruntime"
    for options in ({"clustering": "token-shift"}, {"engine": "torch"}, {"precision": "bfloat16"}):
        with pytest.raises(MissingExtra, match=r"pip install 'centerclip\[torch\]'"):
            open_encoder(folder, **options)
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_bytes(b"")
    with pytest.raises(MissingExtra, match="checkpoint file"):
        open_encoder(checkpoint)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    config = json.loads((other / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "relu"
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingExtra, match="hidden_act"):
        open_encoder(other)


def test_a_device_that_is_not_there(models):
    with pytest.raises(ModelError, match='no device "cuda"'):
        OnnxEncoder(models["clip"][1], device="cuda")


def test_8_bit_weights_alone_open_without_a_gate(models, tmp_path, monkeypatch):
    """As the small model is shipped: whatever the processor, and also where torch has a GPU."""
    _, folder = models["dual"]
    form = conversion.add_int8(conversion.convert(folder), lambda: tiny.videos(2, frames=4).numpy())
    conversion.export_form(form, folder, tmp_path / "small", ["int8"])
    monkeypatch.setattr(engine, "compare", lambda *_: pytest.fail("there is nothing to compare with"))
    monkeypatch.setattr(engine, "_may_have_gpu", lambda: True)
    monkeypatch.setattr("centerclip.model.centerclip.find_device", lambda device: type("GPU", (), {"type": "cuda"}))
    encoder = open_encoder(tmp_path / "small")
    assert (encoder.engine, encoder.precision) == ("onnxruntime", "int8")
    with pytest.raises(ModelError, match="graphs for ONNX Runtime alone"):
        CenterCLIP.from_pretrained(tmp_path / "small", device="cpu")
    with pytest.raises(ModelError, match="holds 8-bit weights alone"):
        open_encoder(tmp_path / "small", precision="float32")


@pytest.mark.parametrize(("first", "threads"), [("numpy", {1}), ("centerclip", None)])
def test_threads_of_numpy_do_not_keep_the_processor_from_the_model(first, threads):
    """They would, for a while, in programs that import NumPy first, where they cannot be told before."""
    program = f"""
import {first}, numpy, os
from threadpoolctl import threadpool_info
from centerclip.parallel import one_blas_thread
def threads(): return {{pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}}
usual = threads()
with one_blas_thread():
    assert threads() == ({threads} or usual), threads()
assert threads() == usual
assert ("OPENBLAS_THREAD_TIMEOUT" in os.environ) == ({first!r} == "centerclip")
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
