"""Engines: ONNX Runtime, which needs neither torch nor transformers, and torch, which runs every model, on GPUs too.

:func:`open_encoder` opens a model on the engine and in the precision that suit the machine. Between the parts of the
vision tower, which :mod:`centerclip.model.conversion` cuts, tokens are clustered by :mod:`centerclip.cluster` in NumPy:
the same functions as in the torch model.
"""

import copy
import importlib.util
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..bundled import resolve_model
from ..cluster import Setting
from ..cluster.segments import Centers, reduce_stage
from ..cluster.setting import Stage
from ..errors import TORCH_LINE, MissingExtra, ModelError, SettingError, WrongWeights, first_line
from ..parallel import one_blas_thread, usable_cores
from .backbone import load_preprocess, read_settings, saved_clustering
from .conversion import (
    WEIGHTS_FOLDER,
    add_int8,
    convert,
    converted_folder,
    export_form,
    find_form,
    keep_report,
    load_report,
    read_form,
    report_file,
    said,
    vision_parts,
)
from .hub import CONFIG_FILE, SETTINGS_FILE, check_config, find_model, read_json
from .pipeline import Bools, Floats, Ids, Pixels, VideoEncoder
from .precision import (
    BFLOAT16_FLAGS,
    EXACT,
    WINDOW_FRAMES,
    Closeness,
    calibration_windows,
    choose,
    compare,
    processor_flags,
    read_report,
)
from .token_ids import SentenceTokenizer
from .vectors import Protocol, segment_mask

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from .centerclip import CenterCLIP

Engine = Literal["auto", "onnxruntime", "torch"]
Precision = Literal["auto", "float32", "int8", "bfloat16"]
# In the order in which they are preferred; those of other onnxruntime packages (onnxruntime-gpu, onnxruntime-directml).
GPU_PROVIDERS = ("CUDAExecutionProvider", "DmlExecutionProvider", "CoreMLExecutionProvider")
SMALL_BYTES = 16 * 2**20  # a smaller vision tower takes no longer than decoding: 8 bits would gain nothing
BATCH_BYTES = 256 * 2**20  # tokens that wait between two parts of the tower
MAX_BATCH = 32
MAX_SENTENCES = 64  # of a run: the values of thousands would not fit into memory


def open_encoder(
    name: str | Path,
    *,
    revision: str | None = None,
    clustering: str | Setting | None = None,
    frames: int | None = None,
    device: str | None = None,
    engine: Engine = "auto",
    precision: Precision = "auto",
) -> VideoEncoder:
    """Open a model on the engine that suits this machine. What is not given comes from its folder, else from defaults.

    A CUDA or Apple GPU that torch can use is taken; otherwise ONNX Runtime, where it can run the model and the
    clustering; otherwise torch. ``engine="onnxruntime"`` never imports torch.

    Args:
        name: a Hugging Face hub name, a folder, ``"small"``, ``"demo"``, or, with torch, a checkpoint file.
        revision: a branch, tag or commit of a model on the hub.
        clustering: the paper's notation, ``"none"`` by default.
        frames: of a window, 12 by default.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``; a GPU if there is one.
        engine: ``"onnxruntime"`` or ``"torch"``; by default the one that suits.
        precision: ``"float32"``, ``"int8"`` (ONNX Runtime) or ``"bfloat16"`` (torch); by default the fastest that was
            found to be close to float32 on this machine.

    Raises:
        ModelError: the model cannot be opened, or neither engine can run it.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    setting = None if clustering is None else Setting.parse(clustering)
    reason = ""
    if engine == "auto" and has_torch and (device in ("cuda", "mps") or (device is None and _may_have_gpu())):
        from .centerclip import find_device

        if find_device(device).type != "cpu" and not _is_exported(Path(resolve_model(name)).expanduser()):
            engine = "torch"
    if precision == "bfloat16":
        reason = "bfloat16 is a precision of torch"
    elif Path(resolve_model(name)).expanduser().is_file():
        reason = f"{name} is a checkpoint file, which torch reads"
    elif engine != "torch":
        folder = find_model(name, revision)
        reason = why_not(folder, setting)
        if not reason:
            return OnnxEncoder(folder, clustering=setting, frames=frames, device=device, precision=precision)
    if engine == "onnxruntime":
        raise ModelError(f"ONNX Runtime cannot run this: {reason}. With torch it runs: {TORCH_LINE}")
    if not has_torch:
        raise MissingExtra(f"{reason or 'the engine'}: torch is needed, which is not installed. Type: {TORCH_LINE}")
    if precision == "int8":
        raise ModelError(f"int8 runs on ONNX Runtime alone{', but ' + reason if reason else ''}; choose float32")
    from .centerclip import CenterCLIP

    wanted = None if precision == "auto" else precision
    model = CenterCLIP.from_pretrained(
        name, revision=revision, clustering=setting, frames=frames, device=device, precision=wanted
    )
    return _in_fastest(model) if wanted is None else model


def why_not(folder: Path, clustering: Setting | None = None) -> str:
    """Why ONNX Runtime cannot run the model of a folder with a clustering (its own by default); empty where it can."""
    settings = read_settings(folder / SETTINGS_FILE)
    setting = clustering or saved_clustering(settings, folder / SETTINGS_FILE)
    if settings.get("temporal"):
        return f"{folder} has a temporal transformer (seqTransf)"
    if setting.chooser is not None or (clustering is None and settings.get("chooser")):
        return "a clustering method of your own"
    if setting.needs_torch:
        return f'"{setting}" is for torch alone'
    if find_form(folder) is not None:
        return ""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "vocab.txt")):
        return f"{folder} has no tokenizer that can be read without transformers"
    if not any(folder.glob("model*.safetensors*")):
        return f"{folder} has no model.safetensors, and other weights are read by torch"
    from .graphs import supports

    return supports(read_json(folder / CONFIG_FILE)) or ""


def export_model(name: str | Path, target: Path, *, precision: str = "auto") -> dict[str, Any]:
    """Write a model in the form that runs without torch and without its source.

    Args:
        name: a Hugging Face hub name, a folder, or ``"demo"``.
        target: a new folder, or one that an earlier export wrote.
        precision: ``"float32"``, ``"int8"``, or ``"auto"``: float32, and int8 too where this machine would take it.

    Returns:
        ``folder``, ``precisions``, ``files`` with their sizes, and what was ``measured`` of the precisions.

    Raises:
        ModelError: the model cannot be converted, the precision is not close to float32, or the target is in use.
    """
    if Path(resolve_model(name)).expanduser().is_file():
        raise ModelError(f"{name} is a checkpoint file: open it with torch and save_pretrained() it as a folder first")
    folder = find_model(name)
    reason = why_not(folder, Setting())
    if reason:
        raise ModelError(f"{name} cannot be exported: {reason}")
    encoder = OnnxEncoder(folder, clustering="none", device="cpu", precision=precision, portable=True)
    precisions = [encoder.precision]
    if precision == "auto" and encoder.precision != EXACT and encoder._form.has(EXACT):
        precisions.insert(0, EXACT)
    files = export_form(encoder._form, folder, target, precisions)
    sizes = {file: (target / file).stat().st_size for file in files}
    return {"folder": str(target), "precisions": precisions, "files": sizes, "measured": encoder.report}


def _is_exported(folder: Path) -> bool:
    """Whether a folder holds the form for ONNX Runtime and no weights that torch reads, as the small model's does."""
    weights = (*folder.glob("model*.safetensors*"), *folder.glob("pytorch_model*.bin*"))
    return read_form(folder) is not None and not weights


def _may_have_gpu() -> bool:
    """Whether torch may find a GPU, without importing it, which takes seconds."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if version("torch").endswith("+cpu"):
        return False
    drivers = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", os.path.expandvars(r"%SystemRoot%\System32\nvcuda.dll"))
    return any(Path(driver).exists() for driver in drivers)


class OnnxEncoder:
    """A model on ONNX Runtime: a :class:`~centerclip.model.pipeline.VideoEncoder` without torch.

    Graphs are loaded when they are needed: for sentences the text tower alone. Safe to use from several threads.

    Args:
        folder: of the model.
        clustering: the paper's notation; the folder's by default, else ``"none"``.
        frames: of a window; the folder's by default, else 12.
        device: ``"cpu"`` leaves out a GPU that this ``onnxruntime`` package could use.
        precision: ``"auto"``, ``"float32"`` or ``"int8"``.
        portable: 8-bit weights are for other processors too, not only for this one.

    Raises:
        ModelError: the model or the precision cannot be used.
    """

    engine = "onnxruntime"

    def __init__(
        self,
        folder: Path,
        *,
        clustering: str | Setting | None = None,
        frames: int | None = None,
        device: str | None = None,
        precision: str = "auto",
        portable: bool = False,
    ) -> None:
        self.folder = folder
        self._config = check_config(folder)
        saved = read_settings(folder / SETTINGS_FILE)
        self._form = convert(folder)
        self.report = self._load_report()
        self._providers = _providers(device)
        self._vision_config = self._config.get("vision_config") or {}
        self.preprocess = load_preprocess(folder, self._vision_config.get("image_size", 224))
        self.protocol: Protocol = saved.get("protocol", "clean")
        self._max_tokens: int | None = saved.get("max_tokens", saved.get("words"))
        self.clustering_seconds = 0.0  # spent between the parts of the tower so far
        self._recorded: list[Ids] | None = None
        self._lock = threading.Lock()
        self._tokenizer: SentenceTokenizer | None = None
        self._text: InferenceSession | None = None
        self.frames = frames or saved.get("frames", 12)
        self.precision = self._choose_precision(precision, portable)
        try:
            usual = saved_clustering(saved, folder / SETTINGS_FILE) if clustering is None else clustering
            self.set_clustering(usual)
        except SettingError as error:
            if clustering is not None or frames is not None:
                raise
            raise ModelError(f'{folder / SETTINGS_FILE}: "clustering" does not fit the model: {error}') from error

    # ---- settings -------------------------------------------------------------------------------------------

    @property
    def clustering(self) -> Setting:
        """The clustering in use; prints as the paper's notation."""
        return self._setting

    @property
    def segments(self) -> int:
        """Vectors of a window."""
        return self._setting.segments(self.frames)

    @property
    def width(self) -> int:
        """Values of a vector."""
        return self._form.width

    @property
    def blocks(self) -> int:
        """Blocks of the vision tower."""
        return self._form.blocks

    @property
    def on_gpu(self) -> bool:
        """Whether the processor is free while the model works."""
        return self._providers[0] in GPU_PROVIDERS

    def set_clustering(self, clustering: str | Setting, *, frames: int | None = None) -> None:
        """Change the clustering, and the frames of a window.

        Raises:
            SettingError: it does not fit the model; nothing changes.
        """
        frames = frames or self.frames
        setting = Setting.parse(clustering)
        if setting.needs_torch:
            raise SettingError(f'"{setting}" needs torch (engine="torch"): {TORCH_LINE}')
        self._setting = setting.check(blocks=self._form.blocks, frames=frames, patches=self._form.patches)
        self.frames = frames
        self._parts: list[InferenceSession] = []

    @property
    def _weighs(self) -> bool:
        """Whether parts of the tower take a ``bias`` for the sizes of clusters."""
        return any(part.proportional for part in self._setting.parts)

    def in_precision(self, precision: str) -> "OnnxEncoder":
        """The same model in another precision, whether that is close to float32 or not: to compare them."""
        other = copy.copy(self)
        if precision == "int8":
            other._add_int8()
        other.precision, other._text = precision, None
        other._parts = []
        return other

    @contextmanager
    def record_centres(self) -> Iterator[list[Ids]]:
        """As :meth:`VideoEncoder.record_centres`."""
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def batch_size(self) -> int:
        """How many windows to encode at a time: their tokens wait together between two parts of the tower."""
        width = self._vision_config.get("hidden_size", 768)
        tokens = self.frames * (self._form.prefix + self._form.patches)
        return int(min(MAX_BATCH, max(1, BATCH_BYTES // (4 * tokens * width))))

    def fingerprint(self) -> str:
        """A hash of what vectors depend on: weights and preprocessing; the same on every engine."""
        return self._form.fingerprint

    def describe(self) -> dict[str, Any]:
        """For ``status`` and ``doctor``: engine, precision, device, and what was measured of the precisions."""
        return {
            "engine": self.engine,
            "precision": self.precision,
            "device": self._providers[0].removesuffix("ExecutionProvider").lower(),
            "threads": usable_cores(),
            "measured": self.report,
        }

    # ---- encoding -------------------------------------------------------------------------------------------

    def encode_windows(self, rgb: Pixels, mask: Bools, *, half: bool = True) -> tuple[Floats, Bools]:
        """Squares ``[V, T, size, size, 3]`` and which frames are real, ``[V, T]``, to vectors.

        Args:
            rgb: uint8, as :meth:`Preprocess.to_square` gives them.
            mask: False where a frame only fills up a short video.
            half: is for other engines.

        Returns:
            segments ``[V, S, D]`` of norm 1, and which of them count, ``[V, S]``.
        """
        size = self.preprocess.size
        if rgb.dtype != np.uint8 or rgb.shape[1:] != (self.frames, size, size, 3):
            raise ModelError(f"expected uint8 [V, {self.frames}, {size}, {size}, 3], got {rgb.dtype} {list(rgb.shape)}")
        # A frame that only repeats the one before, and a segment of nothing else, need not be computed again.
        repeats = _repeats(rgb)
        hidden = self._run(self._vision()[0], repeats, rgb=rgb.reshape(-1, size, size, 3))
        sizes = None
        for number, stage in enumerate(self._setting.stages):
            reduced = self._reduce(hidden, self._setting, number, frames=self.frames, sizes=sizes)
            sizes = reduced.sizes
            repeats = _repeated_segments(repeats, stage.segments)
            hidden = self._run(self._vision()[number + 1], repeats, **self._inputs(stage, reduced))
        vectors = _normalised(hidden).reshape(len(rgb), -1, self.width)
        return vectors, segment_mask(mask, vectors.shape[1], self.protocol)

    def encode_segments(self, rgb: Pixels, lengths: Sequence[int], *, half: bool = True) -> Floats | None:
        """As :meth:`VideoEncoder.encode_segments`."""
        shape = {"window": self.frames, "blocks": self.blocks, "patches": self._form.patches}
        settings = {n: self._setting.for_segment(n, **shape) for n in sorted(set(lengths))}
        if None in settings.values():
            return None
        first, *others = self._vision()
        hidden = first.run(None, {"rgb": rgb})[0]
        if not others:
            return _normalised(hidden)
        starts = np.cumsum([0, *lengths])
        vectors = np.empty((len(lengths), self.width), dtype=np.float32)
        for n, setting in settings.items():
            assert setting is not None
            places = np.flatnonzero(np.equal(lengths, n))
            rows = (starts[places][:, None] + np.arange(n)).reshape(-1)
            reduced = self._reduce(hidden[rows], setting, 0, frames=n)
            vectors[places] = others[0].run(None, self._inputs(setting.stages[0], reduced))[0]
        return _normalised(vectors)

    def _reduce(self, hidden: Floats, setting: Setting, number: int, *, frames: int, sizes: Any = None) -> Centers:
        """Run a stage of a setting, counting its time and what it keeps."""
        start = time.perf_counter()
        with one_blas_thread():
            reduced = reduce_stage(hidden, setting, number, frames=frames, prefix=self._form.prefix, sizes=sizes)
        self.clustering_seconds += time.perf_counter() - start
        if self._recorded is not None and reduced.ids is not None:
            self._recorded.append(reduced.ids)
        return reduced

    def _inputs(self, stage: Stage, reduced: Centers) -> dict[str, Any]:
        """What the part of the tower after a stage takes."""
        bias = reduced.bias
        if bias is None:  # of a stage whose clusters weigh the same
            bias = np.zeros(reduced.tokens.shape[:2], dtype=np.float32)
        return {f"hidden_{stage.block}": reduced.tokens, **({"bias": bias} if self._weighs else {})}

    def encode_sentences(self, texts: Sequence[str]) -> Floats:
        """Sentences to vectors ``[B, D]`` of norm 1."""
        if not texts:
            return np.zeros((0, self.width), dtype=np.float32)
        with self._lock:
            if self._text is None or self._tokenizer is None:
                self._tokenizer = SentenceTokenizer(self.folder, self._config, self._max_tokens)
                threads = 1 if self.precision == "int8" else usable_cores()
                self._text = self._session(self._form.graph("text", self.precision), threads=threads)
        # 8-bit products are short: threads that share one would wait for each other, so each takes some sentences. They
        # are padded to the longest of their part.
        workers = min(usable_cores(), len(texts)) if self.precision == "int8" else 1
        order = np.argsort([len(text) for text in texts], kind="stable")
        parts = np.array_split(order, max(workers, -(-len(texts) // MAX_SENTENCES)))
        if len(parts) == 1:
            return _normalised(self._encode_tokens(texts))
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        with ThreadPoolExecutor(workers) as pool:
            encoded = pool.map(self._encode_tokens, ([texts[place] for place in part] for part in parts))
            for part, found in zip(parts, encoded, strict=True):
                vectors[part] = found
        return _normalised(vectors)

    def _encode_tokens(self, texts: Sequence[str]) -> Floats:
        """Sentences to vectors ``[B, D]``, in one run of the text tower."""
        assert self._text is not None
        assert self._tokenizer is not None
        ids, mask = self._tokenizer(texts)
        vectors: Floats = self._text.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return vectors

    def _run(self, session: "InferenceSession", repeats: Bools, **inputs: Any) -> Any:
        """Run a part of the tower on whole videos, one after the other: together they would only leave the cache.

        A GPU takes them together. Rows that are marked in ``repeats`` ``[V, rows]`` get what the row before gets.
        """
        step = repeats.size if self.on_gpu else repeats.shape[1]
        results = []
        for first in range(0, repeats.size, step):
            fresh = ~repeats.reshape(-1)[first : first + step]
            rows = {name: value[first : first + step][fresh] for name, value in inputs.items()}
            results.append(session.run(None, rows)[0][np.cumsum(fresh) - 1])
        return np.concatenate(results)

    # ---- inside ---------------------------------------------------------------------------------------------

    def _vision(self) -> "list[InferenceSession]":
        """The parts of the vision tower, loaded at the first call."""
        with self._lock:
            if not self._parts:
                cuts = [stage.block for stage in self._setting.stages]
                graphs = vision_parts(self._form, self.precision, cuts, biased=self._weighs)
                self._parts = [self._session(graph, weights) for graph, weights in graphs]
            return self._parts

    def _session(
        self, graph: bytes | Path, weights: Path | None = None, *, threads: int | None = None
    ) -> "InferenceSession":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or usable_cores()
        options.log_severity_level = 3  # errors, which are raised as well
        # Its threads would wait for the next part with the processor running, while others decode or cluster.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if weights is not None:
            options.add_session_config_entry(WEIGHTS_FOLDER, str(weights))
        try:
            return onnxruntime.InferenceSession(
                graph if isinstance(graph, bytes) else str(graph), options, providers=self._providers
            )
        except Exception as error:  # it has a class for each of its error codes
            raise WrongWeights(
                f"{self._form.folder} cannot be loaded by ONNX Runtime: {first_line(error)}. Remove the folder: the "
                "model is converted again then"
            ) from error

    def _choose_precision(self, wanted: str, portable: bool) -> str:
        """The precision to run in. 8-bit weights are made, and compared with float32, where they may be used."""
        if wanted not in ("auto", EXACT, "int8"):
            raise ModelError(f'ONNX Runtime has no precision "{wanted}": choose auto, {EXACT} or int8')
        has_exact = self._form.has(EXACT)
        if wanted == EXACT or (wanted == "auto" and has_exact and (self.on_gpu or self._is_small())):
            if not has_exact:
                raise ModelError(f"{self.folder} holds 8-bit weights alone; choose int8, or export it in float32")
            return EXACT
        self._add_int8(portable)
        if not self._form.has("int8"):
            if wanted == "int8":
                raise ModelError(f"{self.folder} holds no 8-bit weights; choose {EXACT}, or export it with int8")
            return EXACT
        if not has_exact:  # it was compared where it was exported; the graphs are for the processor
            self._providers = self._providers[-1:]
            return "int8"
        closeness = read_report(self.report, "int8") or self._compare()
        if wanted == "int8" and closeness.complaint:
            raise ModelError(f"int8 is not close enough to float32 with {self.folder}: {closeness.complaint}")
        return choose(self.report, ["int8"]) if wanted == "auto" else "int8"

    def _add_int8(self, portable: bool = False) -> None:
        """Make 8-bit weights, where the model is in the cache and has none."""
        if self._form.has(EXACT) and self._form.folder.parent == converted_folder():
            samples = partial(calibration_windows, self.preprocess)
            self._form = add_int8(self._form, samples, portable=portable)
            self.report = self._load_report()

    def _load_report(self) -> dict[str, Any]:
        """What was measured of the precisions, where the model was exported or here."""
        return {**self._form.report, **load_report(report_file(self._form.fingerprint, self._form))}

    def _is_small(self) -> bool:
        return Path(f"{self._form.graph('vision', EXACT)}.data").stat().st_size < SMALL_BYTES

    def _compare(self) -> Closeness:
        """Compare int8 with float32, and keep the report."""
        path = report_file(self._form.fingerprint, self._form)
        measured = _measure(self.in_precision(EXACT), self.in_precision("int8"), path)
        self.report = {**self.report, **measured}
        closeness = read_report(measured, "int8")
        assert closeness is not None
        return closeness


def _in_fastest(model: "CenterCLIP") -> "CenterCLIP":
    """A torch model in bfloat16 where this processor has that and it is close to float32, else as it is."""
    small = sum(each.nbytes for each in model.backbone.vision_model.parameters()) < SMALL_BYTES
    if model.on_gpu or small or not BFLOAT16_FLAGS & processor_flags():
        return model
    lower, path = model.in_bfloat16(), report_file(model.fingerprint())
    model.report = load_report(path)
    if read_report(model.report, "bfloat16") is None:
        setting, frames = model.clustering, model.frames
        model.report = _measure(model, lower, path)
        for each in (model, lower):
            each.set_clustering(setting, frames=frames)
    lower.report = model.report
    return lower if choose(model.report, ["bfloat16"]) == "bfloat16" else model


def _measure(exact: VideoEncoder, lower: VideoEncoder, path: Path) -> dict[str, Any]:
    """Compare a precision with float32, and write that down; returns the whole report. Both lose their clustering."""
    clustering = f"B{max(1, exact.blocks // 2)}-{WINDOW_FRAMES // 2},1/3" if exact.blocks > 1 else "none"
    with said(f"Comparing {lower.precision} with float32 on this machine; this is done once"):
        return keep_report(path, lower.precision, asdict(compare(exact, lower, clustering)))


def _providers(device: str | None) -> list[str]:
    """What ONNX Runtime computes with: a GPU that the installed package can use, and always the processor."""
    from onnxruntime import get_available_providers

    wanted = {"cpu": (), "cuda": GPU_PROVIDERS[:1], "mps": GPU_PROVIDERS[2:]}.get(device or "", GPU_PROVIDERS)
    found = [name for name in wanted if name in get_available_providers()][:1]
    if device in ("cuda", "mps") and not found:
        raise ModelError(f'this onnxruntime finds no device "{device}": choose cpu, or install torch: {TORCH_LINE}')
    return [*found, "CPUExecutionProvider"]


def _repeats(rgb: Pixels) -> Bools:
    """Which frames of ``[V, T, H, W, 3]`` are those before them again, ``[V, T]``."""
    same = [
        [place > 0 and np.array_equal(video[place], video[place - 1]) for place in range(len(video))] for video in rgb
    ]
    return np.array(same, dtype=bool)


def _repeated_segments(repeats: Bools, segments: int) -> Bools:
    """Which segments ``[V, S]`` are those before them again: all their sequences ``[V, sequences]`` are one."""
    groups = repeats.reshape(len(repeats), segments, -1)
    still = np.asarray(groups[..., 1:].all(-1))  # of one picture
    same = np.zeros_like(still)
    same[:, 1:] = groups[:, 1:, 0] & still[:, 1:] & still[:, :-1]
    return same


def _normalised(vectors: Floats) -> Floats:
    """``[..., D]`` of norm 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
