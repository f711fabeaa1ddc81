"""Models in the form that ONNX Runtime takes, converted once and kept.

A form is a folder with ``vision.onnx`` and ``text.onnx`` (in 8 bits ``vision-int8.onnx`` and ``text-int8.onnx``), the
weights of each beside it in ``*.onnx.data``, and ``centerclip.json``, whose key ``onnx`` says which of them are whole.
It is written last: what a killed process left is not used. The folder is in the user's cache, one for each model, or it
is a model's own, as ``centerclip export`` writes it.

The vision tower is kept whole, with a name for what each block gives, and cut where a clustering setting asks for it:
another setting needs no other copy of the weights.
"""

import csv
import hashlib
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import bundled
from ..errors import ModelError, first_line
from ..files import PARTIAL, cache_folder, lock_file, move_into_place, scratch_folder, write_atomic
from .backbone import load_preprocess
from .hub import CONFIG_FILE, PREPROCESSOR_FILES, SETTINGS_FILE, SMALL_FILES, TEMPORAL_FILE, read_json
from .token_ids import SentenceTokenizer
from .vectors import fingerprint_of

if TYPE_CHECKING:
    from .pipeline import Pixels

FORMAT = 2  # of the graphs; another one is converted again
TOWERS = ("vision", "text")
PRECISIONS = ("float32", "int8")
PATIENCE_SECONDS = 2.0  # what takes longer is said to take a moment
LINE = "onnx"  # the key of centerclip.json
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"  # an option of ONNX Runtime
PROJECTIONS = ("text_projection.weight", "text_model.head.weight")  # its rows are the values of a vector


@dataclass(frozen=True)
class Form:
    """A converted model."""

    folder: Path
    fingerprint: str  # of the weights and the preprocessing, as CenterCLIP.fingerprint
    patches: int  # of a frame
    prefix: int  # tokens in front of them
    blocks: int  # of the vision tower
    width: int  # of the vectors
    files: dict[str, dict[str, int]]  # precision -> name and size of its files
    report: dict[str, Any]  # what was measured of the precisions where it was exported
    portable: bool  # whether the 8-bit weights are exact on every processor

    def graph(self, tower: str, precision: str) -> Path:
        """The file of a graph."""
        return self.folder / graph_name(tower, precision)

    def has(self, precision: str) -> bool:
        """Whether the files of a precision are all there, and whole."""
        files = self.files.get(precision, {})
        sizes = {name: _size(self.folder / name) for name in files}
        return bool(files) and sizes == files


def graph_name(tower: str, precision: str) -> str:
    """``vision.onnx``, ``text-int8.onnx``."""
    return f"{tower}.onnx" if precision == "float32" else f"{tower}-{precision}.onnx"


def converted_folder() -> Path:
    """Where converted models are kept."""
    return cache_folder() / "onnx"


def find_form(folder: Path) -> Form | None:
    """The converted form of a model's folder: inside it, or in the cache; None where there is none that is whole."""
    return read_form(folder) or read_form(_cached(folder))


def read_form(folder: Path) -> Form | None:
    """The form in a folder, with at least one precision whole."""
    try:
        line = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))[LINE]
        numbers = {name: line[name] for name in ("patches", "prefix", "blocks", "width")}
        files = {
            precision: {str(name): int(size) for name, size in line["files"].get(precision, {}).items()}
            for precision in PRECISIONS
        }
        if line["format"] != FORMAT or not all(type(number) is int and number >= 0 for number in numbers.values()):
            return None
        if not all(Path(name).name == name for each in files.values() for name in each):
            return None
        if "source" in line and "portable" not in line:  # made with a scale for each run; they can be made anew
            files["int8"] = {}
        report, portable = dict(line.get("report") or {}), bool(line.get("portable", True))
        form = Form(folder, str(line["fingerprint"]), **numbers, files=files, report=report, portable=portable)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no such file, or another program's
        return None
    return form if any(form.has(precision) for precision in PRECISIONS) else None


def convert(folder: Path) -> Form:
    """The form of a model's folder; converted into the cache where there is none yet.

    Raises:
        ModelError: the weights or the configuration cannot be converted.
    """
    form = find_form(folder)
    if form is not None:
        return form
    target = _cached(folder)
    with _one_at_a_time(target.parent), said(f"Converting {folder.name} for ONNX Runtime; this is done once"):
        _remove_stale(target.parent)
        form = read_form(target)  # another process may have been quicker
        if form is None:
            source = {"source": str(folder), "stamps": _stamps(folder)}
            form = _write(target, lambda scratch: _write_float32(folder, scratch), source)
    return form


def add_int8(form: Form, samples: "Callable[[], Pixels]", *, portable: bool = True) -> Form:
    """The same form with 8-bit weights beside those in float32.

    Args:
        form: in the cache.
        samples: gives frames ``[V, T, size, size, 3]`` of some videos: what is rounded is chosen on them.
        portable: for other processors too, not only for this one.
    """
    if _has_int8(form, portable):
        return form
    with _one_at_a_time(form.folder.parent), said("Making 8-bit weights; this is done once"):
        form = read_form(form.folder) or form  # another process may have been quicker
        if _has_int8(form, portable):
            return form
        report_file(form.fingerprint, form).unlink(missing_ok=True)  # it is of other weights
        return _write(form.folder, lambda scratch: _write_int8(form, scratch, samples(), portable), {})


def _has_int8(form: Form, portable: bool) -> bool:
    """Whether a form has 8-bit weights that are exact here, and, if they are to be portable, on every processor."""
    from .quantise import is_exact

    # A cache may be shared by machines: weights that were made on another one need not be exact on this one.
    return form.has("int8") and (form.portable or (not portable and is_exact()))


def report_file(fingerprint: str, form: Form | None = None) -> Path:
    """Where it is kept what was measured of a model's precisions: beside a form in the cache, else alone there."""
    cached = form is not None and form.folder.parent == converted_folder()
    return (form.folder if form and cached else converted_folder() / fingerprint) / "precision.json"


def load_report(path: Path) -> dict[str, Any]:
    """What was measured of a model's precisions on this machine, by their names."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        report = None
    return report if isinstance(report, dict) else {}


def keep_report(path: Path, precision: str, line: dict[str, Any]) -> dict[str, Any]:
    """Write down what was measured of a precision; returns all that was."""
    report = {**load_report(path), precision: line}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(report, indent=2) + "\n")
    return report


def export_form(form: Form, folder: Path, target: Path, precisions: Sequence[str]) -> list[str]:
    """Write a model in a form for others: graphs, weights, configuration, tokenizer and preprocessing.

    Args:
        form: of the model.
        folder: of the model, with its configuration.
        target: a new or empty folder, or one that this function wrote, which is replaced.
        precisions: which of the form's to write.

    Returns:
        the names of what was written.

    Raises:
        ModelError: the target is something else.
    """
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and read_form(target) is None)):
        raise ModelError(f"{target} is there and was not written by `centerclip export`; name a new folder with -o")
    if target.resolve() == form.folder.resolve():
        raise ModelError(f"{target} is the model itself; name a new folder with -o")
    settings = read_json(folder / SETTINGS_FILE) if (folder / SETTINGS_FILE).is_file() else {}
    line = read_json(form.folder / SETTINGS_FILE)[LINE]
    line = {name: value for name, value in line.items() if name not in ("source", "stamps")}
    line["files"] = {precision: form.files[precision] for precision in precisions}
    line["report"] = {**form.report, **load_report(report_file(form.fingerprint, form))}
    small = [name for name in SMALL_FILES if (folder / name).is_file() and name not in (SETTINGS_FILE, TEMPORAL_FILE)]
    large = [name for precision in precisions for name in form.files[precision]]
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target) as scratch:
        whole = scratch / "whole"
        whole.mkdir()
        for name in small:
            shutil.copyfile(folder / name, whole / name)
        for name in large:
            shutil.copyfile(form.folder / name, whole / name)
        (whole / SETTINGS_FILE).write_text(json.dumps({**settings, LINE: line}, indent=2) + "\n", encoding="utf-8")
        if target.exists():  # an earlier export: never a mixture of both
            target.replace(scratch / "old")
        move_into_place(whole, target)
    return [*small, *large, SETTINGS_FILE]


@contextmanager
def said(line: str) -> Iterator[None]:
    """Say on a terminal what is going on, once it takes longer than a moment."""
    timer = threading.Timer(PATIENCE_SECONDS, lambda: print(f"{line} ...", file=sys.stderr, flush=True))
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- cutting ------------------------------------------------------------------------------------------------


def vision_parts(form: Form, precision: str, cuts: Sequence[int], *, biased: bool) -> list[tuple[bytes, Path]]:
    """The graphs of the vision tower, cut after some blocks.

    Args:
        form: of the model.
        precision: of the weights.
        cuts: blocks, from 1 on, ascending.
        biased: give the parts after the first one an input ``bias [M, L]``, added to the attention scores of keys.

    Returns:
        Each graph as ONNX Runtime takes it, with the folder of its weights: first ``rgb`` uint8 ``[N, size, size, 3]``
        -> ``hidden_6 [N, L, W]`` after a cut at 6, which the next one takes; the last gives ``vectors [M, D]``.
    """
    import onnx

    from .graphs import cut

    whole = onnx.load(str(form.graph("vision", precision)), load_external_data=False)
    weights = Path(f"{form.graph('vision', precision)}.data").resolve()  # where a hub's cache keeps it
    for tensor in whole.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = weights.name
    return [(part.SerializeToString(), weights.parent) for part in cut(whole, cuts, form.blocks, biased=biased)]


# ---- writing ------------------------------------------------------------------------------------------------


def _write_float32(folder: Path, scratch: Path) -> dict[str, Any]:
    """Write the graphs of a model's folder; returns what is said about them."""
    from .graphs import Weights, layout, save, text_graph, vision_graph

    config = read_json(folder / CONFIG_FILE)
    sizes, weights = layout(config), Weights(folder)
    preprocess = load_preprocess(folder, sizes.image_size)
    save(vision_graph(folder, preprocess.scale_and_shift()), scratch / graph_name("vision", "float32"))
    save(text_graph(folder), scratch / graph_name("text", "float32"))
    projection = next(name for name in PROJECTIONS if name in weights)
    return {
        "format": FORMAT,
        "fingerprint": fingerprint_of(preprocess, (weights[name] for name in weights if not name.endswith("_ids"))),
        "patches": sizes.patches,
        "prefix": sizes.prefix,
        "blocks": sizes.blocks,
        "width": len(weights[projection]),
    }


def _write_int8(form: Form, scratch: Path, samples: "Pixels", portable: bool) -> dict[str, Any]:
    """Write the graphs of a form with 8-bit weights; returns what is said about them."""
    import onnx
    import onnxruntime

    from .graphs import save
    from .quantise import is_exact, layer_inputs, quantise

    ((vision, weights),) = vision_parts(form, "float32", [], biased=False)
    feeds = {"vision": [{"rgb": sample} for sample in samples], "text": _sample_sentences(form)}
    for tower in TOWERS:
        file = form.graph(tower, "float32")
        watched = onnx.load_from_string(vision) if tower == "vision" else onnx.load(str(file), load_external_data=False)
        for name in layer_inputs(watched):
            watched.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
        float32 = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
        model = onnx.load(str(file))
        quantise(model, float32, feeds[tower], portable=portable)
        save(model, scratch / graph_name(tower, "int8"))
    return {"portable": portable or not is_exact()}


def _sample_sentences(form: Form) -> list[dict[str, Any]]:
    """What the bundled clips show, as the text tower takes it."""
    folder = Path(read_json(form.folder / SETTINGS_FILE)[LINE]["source"])
    tokenizer = SentenceTokenizer(folder, read_json(folder / CONFIG_FILE))
    with (bundled.FILM / "clips.csv").open(encoding="utf-8", newline="") as lines:
        tokens = [tokenizer([row["query"]]) for row in csv.DictReader(lines)]
    return [{"input_ids": ids, "attention_mask": mask} for ids, mask in tokens]


def _write(target: Path, write: Callable[[Path], dict[str, Any]], more: dict[str, Any]) -> Form:
    """Write files of a form, so that they are all there or not at all; returns the form."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(target) as scratch:
            line = {**more, **write(scratch)}
            files = {path.name: path.stat().st_size for path in scratch.iterdir()}
            before = read_json(target / SETTINGS_FILE) if "format" not in line else {LINE: {"files": {}}}
            precision = "int8" if any("-int8." in name for name in files) else "float32"
            line = {**before[LINE], **line, "files": {**before[LINE]["files"], precision: files}}
            _move_in(scratch, target, {**before, LINE: line})
    except OSError as error:
        raise ModelError(f"{target} cannot be written: {first_line(error)}. $CENTERCLIP_CACHE names another") from error
    form = read_form(target)
    assert form is not None
    return form


def _move_in(scratch: Path, target: Path, settings: dict[str, Any]) -> None:
    """Move files from beside a folder into it, and write at last which of them there are."""
    target.mkdir(parents=True, exist_ok=True)
    for path in scratch.iterdir():
        move_into_place(path, target / path.name)
    write_atomic(target / SETTINGS_FILE, json.dumps(settings, indent=2) + "\n")


# ---- the cache ----------------------------------------------------------------------------------------------


def _cached(folder: Path) -> Path:
    """Where the form of a model's folder is kept: it changes with the folder's weights, settings and our format."""
    key = json.dumps([FORMAT, str(folder.resolve()), _stamps(folder)])
    return converted_folder() / hashlib.blake2b(key.encode(errors="surrogateescape"), digest_size=12).hexdigest()


def _stamps(folder: Path) -> dict[str, list[int]]:
    """Size and time of the files that a form depends on."""
    names = [CONFIG_FILE, *PREPROCESSOR_FILES, *sorted(path.name for path in folder.glob("model*.safetensors*"))]
    stats = {name: (folder / name).stat() for name in names if (folder / name).is_file()}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _remove_stale(cache: Path) -> None:
    """Remove the forms of models that are gone or have changed, and what killed processes left."""
    for entry in cache.iterdir():
        if entry.name.endswith(PARTIAL):  # nobody else is writing: see _one_at_a_time
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.is_dir():
            with suppress(OSError, ValueError, KeyError, TypeError):
                line = json.loads((entry / SETTINGS_FILE).read_text(encoding="utf-8"))[LINE]
                if _stamps(Path(line["source"])) != line["stamps"]:
                    shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Wait for another process that converts a model: two would do the same work, in twice the memory."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "convert.lock").open("ab") as file:
        lock_file(file, wait=True)
        yield


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
