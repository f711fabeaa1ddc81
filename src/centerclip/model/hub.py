"""Finds a model by its name: a folder, the bundled one, or a model on the Hugging Face hub, which is fetched once.

What is fetched goes into the cache that other programs share (``$HF_HOME``), in its layout: ``blobs/<hash>``,
``snapshots/<commit>/<file>`` and ``refs/<branch>``. The client of the hub names the errors and signs the requests; the
bytes are read here, since it forgets what has arrived when a download ends early, and people have slow connections.
"""

import errno
import hashlib
import importlib.util
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bundled import SMALL, resolve_model
from ..errors import TORCH_LINE, ModelError, ModelNotFound, NotADualEncoder, WrongWeights, first_few, first_line
from ..extend import backbones
from ..files import lock_file, move_into_place, write_atomic
from .known import DEFAULT_MODEL, full_name

MODEL_CLASSES = {  # model_type in config.json -> class in transformers
    "clip": "CLIPModel",
    "chinese_clip": "ChineseCLIPModel",
    "metaclip_2": "MetaClip2Model",
    "siglip": "SiglipModel",
    "vision-text-dual-encoder": "VisionTextDualEncoderModel",
}
backbones.reserve(MODEL_CLASSES)
CONFIG_FILE = "config.json"
SIZES = (  # of a tower, in its configuration
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "image_size",
    "patch_size",
)
SETTINGS_FILE = "centerclip.json"
TEMPORAL_FILE = "temporal.safetensors"
PREPROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
TOKENIZER_FILES = (  # any of them is a tokenizer
    "tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model",
)  # fmt: skip
SMALL_FILES = (  # what is fetched beside the weights, as far as it is there
    CONFIG_FILE, TEMPORAL_FILE, *PREPROCESSOR_FILES, *TOKENIZER_FILES,
    "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
SAFE_WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
EXPORTED = (".onnx", ".onnx.data")  # so end the files that `centerclip export` writes, with SETTINGS_FILE beside them

HUB_SECONDS = 15.0  # how long the hub may be silent
DEFAULT_SECONDS = 5.0  # how long it may take to answer where a model that is here would do as well
RETRIES = 3  # in a row, without a byte in between
RETRY_SECONDS = 1.0
COMMIT = re.compile(r"[0-9a-f]{40}")
PLAIN_NAME = re.compile(r"[\w.-]+")  # of a file: no path
OFFLINE_HINT = (
    "Try again with a connection, or use a model on this machine: a folder that save_pretrained wrote "
    f"(--model my-folder), or the small one that comes with CenterCLIP (--model {SMALL})"
)

OnBytes = Callable[[int, int], object]  # (bytes that are here, bytes in all)
_progress: list[Callable[[], AbstractContextManager[OnBytes]]] = []  # see show_downloads


def show_downloads(progress: Callable[[], AbstractContextManager[OnBytes]]) -> None:
    """For a program with a screen: ``with progress() as on_progress`` is around every download from now on."""
    _progress[:] = [progress]


def find_model(
    name: str | Path, revision: str | None = None, *, exported: bool = True, on_progress: OnBytes | None = None
) -> Path:
    """The folder of a model on this machine; a model on the hub is fetched first, where it is not here yet.

    Args:
        name: a folder, ``"small"``, ``"demo"``, a hub name as ``"owner/name"`` or ``"owner/name@revision"``, or a short
            one: ``"fast"``, ``"best"``, ``"multilingual"`` (:mod:`centerclip.model.known`).
        revision: a branch, tag or commit of the model on the hub; its main branch by default.
        exported: take what ``centerclip export`` wrote, where the hub has it, in place of the weights.
        on_progress: called with the bytes that have arrived and all bytes, while something is fetched; by default
            what :func:`show_downloads` was given, if anything.
    """
    name, revision = split_revision(full_name(name), revision)
    path = Path(resolve_model(name)).expanduser()
    if path.exists() and revision is not None:
        raise ModelError(f"{path} is on this machine and has no revisions; leave out revision={revision!r}")
    if path.is_file():
        raise ModelError(f"{path} is a checkpoint file, and a folder with a {CONFIG_FILE} is needed here")
    if path.is_dir():
        if not (path / CONFIG_FILE).is_file():
            raise ModelNotFound(f"{path} is not a model folder: it has no {CONFIG_FILE}")
        return path
    if not is_hub_name(name):
        raise ModelNotFound(f"there is no file or folder {path}; a model on the Hugging Face hub is called owner/name")
    return _from_hub(str(name), revision, exported, on_progress)


def default_model() -> tuple[str, str]:
    """The model for a new index, and why it is the small one; an empty reason where it is the default.

    The default is taken where it is in the cache, or the hub answers; the answer is waited for a few seconds.
    """
    from huggingface_hub import constants

    store = _store(DEFAULT_MODEL)
    snapshot = _cached_snapshot(store, None)
    if snapshot and not _missing_files(snapshot, exported=True):
        return DEFAULT_MODEL, ""
    if constants.HF_HUB_OFFLINE:
        return SMALL, "HF_HUB_OFFLINE is set"
    from huggingface_hub import HfApi

    reasons = [f"no answer within {DEFAULT_SECONDS:g} s"]

    def ask() -> None:
        try:
            HfApi().model_info(DEFAULT_MODEL, timeout=DEFAULT_SECONDS)
            reasons.append("")
        except Exception as error:  # httpx, sockets, proxies, a page of a hotel: many kinds, one thing to do
            reasons.append(first_line(error))

    # In a thread of its own: looking up a name knows no time limit.
    asking = threading.Thread(target=ask, daemon=True)
    with _quiet():
        asking.start()
        asking.join(DEFAULT_SECONDS)
    return (SMALL, reasons[-1]) if reasons[-1] else (DEFAULT_MODEL, "")


def is_hub_name(name: str | Path) -> bool:
    """Whether a name stands for a model on the hub: ``owner/name`` or ``owner/name@revision``, and no such file."""
    name, _ = split_revision(name)
    if not isinstance(name, str) or Path(name).expanduser().exists():
        return False
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", name)) and Path(name).suffix not in (".pt", ".pth", ".bin")


def split_revision(name: str | Path, revision: str | None = None) -> tuple[str | Path, str | None]:
    """``"owner/name@v1"`` as ``("owner/name", "v1")``: so a program that keeps the name keeps the revision too."""
    if isinstance(name, str) and not Path(name).expanduser().exists():
        parts = re.fullmatch(r"([\w.-]+/[\w.-]+)@(.+)", name)
        if parts and revision not in (None, parts[2]):
            raise ModelError(f'"{name}" and revision={revision!r} name two revisions; leave out one')
        if parts:
            name, revision = parts[1], parts[2]
    if revision is not None and (not re.fullmatch(r"[\w.+/-]+", revision) or ".." in revision or revision[0] == "/"):
        raise ModelError(f"{revision!r} cannot be a revision; give a branch, tag or commit of the model")
    return name, revision


def check_model_type(folder: Path) -> str:
    """The ``model_type`` of a model's folder, if it is one that encodes images and text."""
    model_type = read_json(folder / CONFIG_FILE).get("model_type")
    if model_type not in MODEL_CLASSES and backbones.get(str(model_type)) is None:
        hint = "If it is of a package, install that; see docs/extending.md"
        if model_type == "siglip2":
            hint = (
                "This one takes images of any shape; take one of a fixed size: --model google/siglip2-base-patch16-224"
            )
        raise NotADualEncoder(
            f"{folder} holds a model of type {model_type!r}; a model that encodes both images and text is needed: "
            f"{', '.join([*MODEL_CLASSES, *backbones.names()])}. {hint}"
        )
    return str(model_type)


def check_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model's folder, if its sizes are numbers, and describe no more than the weights can hold.

    Libraries that make a model before they look at its weights would take terabytes, or hours, for a few letters.

    Raises:
        WrongWeights: it says something else.
    """
    config, parameters = read_json(folder / CONFIG_FILE), 0
    for section in ("vision_config", "text_config"):
        tower = config.get(section) or {}
        sizes = {name: tower.get(name, 1) for name in SIZES} if isinstance(tower, dict) else {section: tower}
        for name, value in sizes.items():
            numbers = value if isinstance(value, list) and value else [value]
            if not all(type(number) is int and number > 0 for number in numbers):
                raise WrongWeights(f"{folder / CONFIG_FILE}: {name} of {section} is {str(value)[:40]!r}, not a size")
            sizes[name] = max(numbers)
        width, blocks, inner, words, positions, side, patch = (sizes[name] for name in SIZES)
        parameters += blocks * width * (4 * width + 2 * inner) + width * (words + positions + (side // patch) ** 2)
    kinds = (Path(name).suffix for name in (SAFE_WEIGHTS, PICKLED_WEIGHTS))
    held = sum(_size(file) for kind in kinds for file in folder.glob(f"*{kind}"))  # a byte for each at least
    if held and parameters > held:
        raise WrongWeights(
            f"{folder / CONFIG_FILE} describes {parameters:,} parameters or more, but the weights are only {held:,} "
            "bytes: they do not belong together"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return content


# ---- the cache ----------------------------------------------------------------------------------------------


def _from_hub(name: str, revision: str | None, exported: bool, on_progress: OnBytes | None) -> Path:
    """The folder of a hub model: from the cache if it is there whole, else what is missing is fetched."""
    store = _store(name)
    snapshot = _cached_snapshot(store, revision)
    missing = _missing_files(snapshot, exported) if snapshot else []
    if snapshot and not missing:
        return snapshot
    progress = _progress[0] if _progress and not on_progress else lambda: nullcontext(on_progress or _no_progress)
    with _explained(name, revision, store, missing), _quiet(), progress() as report:
        return _fetch(name, revision, store, exported, report)


def _store(name: str) -> Path:
    """Where the cache keeps a model."""
    from huggingface_hub import constants  # alone it imports no network: a search needs no more

    return Path(constants.HF_HUB_CACHE).expanduser() / f"models--{name.replace('/', '--')}"


def _no_progress(done: int, total: int) -> None:
    """For those who did not ask."""


def _cached_snapshot(store: Path, revision: str | None) -> Path | None:
    """The folder in the cache that holds a model, whole or not."""
    commit = revision or "main"
    reference = store / "refs" / commit
    if reference.is_file():
        commit = reference.read_text(encoding="utf-8").strip()
    snapshot = store / "snapshots" / commit
    return snapshot if COMMIT.fullmatch(commit) and snapshot.is_dir() else None


def _missing_files(snapshot: Path, exported: bool) -> list[str]:
    """What a snapshot lacks of the files that a model on the hub has: other programs fetch single files.

    Without this check a model would open with CLIP's preprocessing or tokenizer in place of its own.
    """
    names = {path.name for path in snapshot.iterdir() if path.is_file()}
    missing = [] if CONFIG_FILE in names else [CONFIG_FILE]
    if names.isdisjoint(PREPROCESSOR_FILES):
        missing.append(PREPROCESSOR_FILES[0])
    if names.isdisjoint(TOKENIZER_FILES):
        missing.append(TOKENIZER_FILES[0])
    elif "vocab.json" in names and names.isdisjoint(("tokenizer.json", "merges.txt")):
        missing.append("merges.txt")
    if exported and _exported_files(names):
        return missing
    weights = _weights(names)
    if weights is None:
        return [*missing, SAFE_WEIGHTS]
    index = snapshot / f"{weights}.index.json"
    return missing if weights in names else [*missing, *(name for name in _shards(index) if name not in names)]


def _exported_files(names: Iterable[str]) -> list[str]:
    """The graphs and their weights as ``centerclip export`` writes them; none where the settings are not there."""
    names = set(names)
    if SETTINGS_FILE not in names or not any(name.endswith(".onnx") for name in names):
        return []
    return sorted(name for name in names if name.endswith(EXPORTED))


def _weights(names: Iterable[str]) -> str | None:
    """Which set of weights to take, whole or in shards; pickled ones only where torch can read them."""
    kinds = (SAFE_WEIGHTS, PICKLED_WEIGHTS) if importlib.util.find_spec("torch") else (SAFE_WEIGHTS,)
    names = set(names)
    return next((kind for kind in kinds if kind in names or f"{kind}.index.json" in names), None)


def _shards(index: Path) -> list[str]:
    """The files that the index of a model's weights names."""
    shards = read_json(index).get("weight_map")
    names = sorted(set(shards.values())) if isinstance(shards, dict) else []
    if not names or not all(isinstance(name, str) and PLAIN_NAME.fullmatch(name) for name in names):
        raise ModelError(f"{index} does not name the files of the weights")
    return names


# ---- fetching -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file on the hub."""

    name: str
    url: str
    etag: str  # SHA-256 of a large file, git's SHA-1 of a small one
    size: int

    @property
    def partial(self) -> str:
        """What it is called until it is whole; the hub's client does it so too."""
        return f"{self.etag}.incomplete"


def _fetch(name: str, revision: str | None, store: Path, exported: bool, on_progress: OnBytes) -> Path:
    """Bring a model into the cache: its config and what that says first, then one set of weights."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(name, revision=revision, timeout=HUB_SECONDS)
    if not COMMIT.fullmatch(info.sha or ""):
        raise ModelError(f"the hub names no commit of {name}; check HF_ENDPOINT and the proxy")
    snapshot = store / "snapshots" / str(info.sha)
    names = {file.rfilename for file in info.siblings or [] if PLAIN_NAME.fullmatch(file.rfilename)}
    if CONFIG_FILE not in names:
        raise ModelNotFound(f'"{name}" on the Hugging Face hub holds no model that can be opened: no {CONFIG_FILE}')
    snapshot.mkdir(parents=True, exist_ok=True)
    with (store / "centerclip.lock").open("ab") as lock:
        while not lock_file(lock, wait=True):  # another process fetches the same
            time.sleep(RETRY_SECONDS)
        _fetch_files(name, [CONFIG_FILE], snapshot)
        check_model_type(snapshot)  # before gigabytes of something else arrive
        weights = (_exported_files(names) if exported else []) or _weight_files(name, names, snapshot)
        # The settings last: graphs without them are not taken for a whole model.
        wanted = [*(file for file in SMALL_FILES if file in names), *weights, *({SETTINGS_FILE} & names)]
        _fetch_files(name, wanted, snapshot, on_progress)
        # By branch or tag, not by commit: only then the cache knows next time which commit the name stands for.
        if revision != snapshot.name:
            reference = store / "refs" / (revision or "main")
            reference.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(reference, snapshot.name)
    return snapshot


def _weight_files(name: str, names: set[str], snapshot: Path) -> list[str]:
    kind = _weights(names)
    if kind is None:
        raise ModelError(_no_weights(name, names))
    if kind in names:
        return [kind]
    _fetch_files(name, [f"{kind}.index.json"], snapshot)
    return _shards(snapshot / f"{kind}.index.json")


def _fetch_files(name: str, names: list[str], snapshot: Path, on_progress: OnBytes = _no_progress) -> None:
    """Fetch files of one commit into the cache, those that are not there yet."""
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir(exist_ok=True)
    files = [_look_up(name, file, snapshot.name) for file in names if not (snapshot / file).is_file()]
    total = sum(file.size for file in files)
    needed = total - sum(_size(blobs / file.etag) or _size(blobs / file.partial) for file in files)
    free = shutil.disk_usage(blobs).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free")
    done = 0

    def on_size(size: int) -> None:
        on_progress(done + size, total)

    for file in files:
        blob, link = blobs / file.etag, snapshot / file.name
        if not blob.is_file():
            _download(file, blobs / file.partial, on_size)
            _check(file, blobs / file.partial)
            move_into_place(blobs / file.partial, blob)
        link.unlink(missing_ok=True)  # it may lead to a file that is gone
        try:
            link.symlink_to(Path("..", "..", "blobs", file.etag))
        except OSError:  # Windows without developer mode: the file itself, as the hub's own client does it
            blob.replace(link)
        done += file.size
        on_progress(done, total)


def _look_up(name: str, file: str, commit: str) -> _File:
    """Size and hash of a file on the hub."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(name, file, revision=commit)
    found = get_hf_file_metadata(url, timeout=HUB_SECONDS)
    if found.size is None or not found.etag or not PLAIN_NAME.fullmatch(found.etag):
        raise ModelError(f"{url} is not answered as the Hugging Face hub does it; check HF_ENDPOINT and the proxy")
    return _File(file, url, found.etag, found.size)


def _download(file: _File, target: Path, on_size: Callable[[int], object]) -> None:
    """Fetch a file, from where an earlier download of it ended; a cut connection is opened again."""
    if _size(target) > file.size:
        target.unlink()
    target.touch()
    failures = 0
    while (start := _size(target)) < file.size:
        failure: Exception = ModelError(f"{file.url} is shorter than the hub says; check HF_ENDPOINT and the proxy")
        try:
            _read_from(file, target, start, on_size)
        except OSError:  # a full disk, an answer of the hub: no use to ask again
            raise
        except Exception as error:  # of the client's HTTP library, which is another from time to time
            failure = error
        failures = 0 if _size(target) > start else failures + 1
        if failures > RETRIES:
            raise failure
        time.sleep(RETRY_SECONDS if failures else 0)


def _read_from(file: _File, target: Path, start: int, on_size: Callable[[int], object]) -> None:
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={start}-"}
    with get_session().stream("GET", file.url, headers=headers, timeout=HUB_SECONDS) as answer:
        hf_raise_for_status(answer)
        with target.open("r+b") as content:
            content.seek(start if answer.status_code == 206 else 0)  # 200: a server that knows no ranges sends all
            content.truncate()
            for chunk in answer.iter_bytes():
                content.write(chunk)
                on_size(content.tell())


def _check(file: _File, target: Path) -> None:
    """Remove a downloaded file that is not what the hub says it is."""
    with target.open("rb") as content:
        if re.fullmatch(r"[0-9a-f]{64}", file.etag):
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        elif COMMIT.fullmatch(file.etag):  # as git names a file; such files are small
            digest = hashlib.sha1(b"blob %d\0" % file.size + content.read(), usedforsecurity=False).hexdigest()
        else:
            digest = file.etag
    if digest != file.etag:
        target.unlink()
        raise ModelError(f"{file.url} did not arrive as it was sent; try again")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


# ---- what went wrong ----------------------------------------------------------------------------------------


def _no_weights(name: str, names: set[str]) -> str:
    if names & {PICKLED_WEIGHTS, f"{PICKLED_WEIGHTS}.index.json"}:
        return (
            f'"{name}" has only .bin weights, which need torch: type `{TORCH_LINE}`, or take a model with safetensors, '
            f"such as --model {DEFAULT_MODEL}"
        )
    return (
        f'"{name}" has no weights that can be opened, {SAFE_WEIGHTS} or {PICKLED_WEIGHTS}; take another model, such '
        f"as --model {DEFAULT_MODEL}"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """The hub's client warns about retries, and about missing tokens; what a person must know is in the errors."""
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def _explained(name: str, revision: str | None, store: Path, missing: list[str]) -> Iterator[None]:
    """Say what is wrong in one sentence that says what to type."""
    from huggingface_hub import constants, errors

    model = f'"{name}"' + (f' at revision "{revision}"' if revision else "")
    try:
        yield
    except ModelError:
        raise
    except errors.GatedRepoError as error:
        raise ModelNotFound(
            f"{model} is open to those who accept its terms: do so on {constants.ENDPOINT}/{name}, then type "
            "`hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelNotFound(f'there is no revision "{revision}" of "{name}" on the Hugging Face hub') from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFound(
            f'there is no folder "{name}" and no such model on the Hugging Face hub; a private one needs '
            "`hf auth login` first"
        ) from error
    except errors.HFValidationError as error:
        raise ModelNotFound(f'"{name}" is neither a folder nor a valid name on the Hugging Face hub') from error
    except Exception as error:  # httpx, sockets, proxies: many kinds, one thing to say
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"the disk is full: {model} does not fit into {store} ({error.strerror}). Free some space, or set "
                "HF_HOME to a folder on another disk; what has arrived is kept"
            ) from error
        if isinstance(error, OSError) and error.filename:
            raise ModelError(f"{store} cannot be written ({error.strerror}); set HF_HOME to another folder") from error
        state = f"only partly on this machine (missing: {first_few(missing)})" if missing else "not on this machine"
        raise ModelNotFound(
            f"{model} is {state} and could not be fetched from the Hugging Face hub: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    from huggingface_hub import errors
    from huggingface_hub.utils import parse_ratelimit_headers

    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set. Unset it, or: {OFFLINE_HINT}"
    if not isinstance(error, errors.HfHubHTTPError):
        return f"{first_line(error)}. {OFFLINE_HINT}"
    status = error.response.status_code
    if status in (401, 403):
        return f"it refuses access ({status}). Type `hf auth login` with a token that may read the model"
    if status == 429:
        limit = parse_ratelimit_headers(error.response.headers)
        wait = limit.reset_in_seconds if limit else error.response.headers.get("Retry-After", "")
        return (
            f"too many requests from here (429). Wait {f'{wait} seconds' if wait else 'some minutes'} and try again, "
            "or type `hf auth login`: with an account more is allowed"
        )
    return f"{first_line(error)}. Try again later; what has arrived is kept"
