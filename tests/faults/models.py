"""Model folders and files that want to run code, lie about sizes, or are bombs; opened in a process with limits.

Whatever is in them, nothing of it runs, memory is bounded, and the error is a sentence (a ``ModelError``)."""

import json
import pickle
import resource
import shutil
import zipfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MAX_BYTES = 2**30  # that opening one may take beside what is loaded already


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (f"open({str(self.path)!r}, 'w').close()",))


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def lying_header(header: dict[str, Any] | bytes, length: int | None = None, data: bytes = b"") -> bytes:
    """A safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def hostile(model: Path, folder: Path, canary: Path) -> dict[str, Path]:
    """Many of them, made from a good model folder; none is as large on the disk as it claims to be."""
    made: dict[str, Path] = {}

    def copy(name: str) -> Path:
        made[name] = folder / name.replace(" ", "-")
        return Path(shutil.copytree(model, made[name]))

    code = f"open({str(canary)!r}, 'w').close()\n"
    for key in ("auto_map", "auto_map and trust_remote_code"):
        target = copy(key)
        (target / "evil.py").write_text(code + "class Evil: pass\nclass CLIPModel: pass\nclass CLIPConfig: pass\n")
        names = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer", "AutoProcessor"), "evil.Evil")
        for file in ("config.json", "tokenizer_config.json", "preprocessor_config.json"):
            if (target / file).exists():
                change_json(target / file, lambda content, names=names: content.update(auto_map=names))
        if "trust" in key:
            change_json(
                target / "config.json", lambda content: content.update(trust_remote_code=True, model_type="evil")
            )
    target = copy("pickle instead of safetensors")
    (target / "model.safetensors").unlink()
    (target / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": Canary(canary)}))
    target = copy("pickle called safetensors")
    (target / "model.safetensors").write_bytes(pickle.dumps(Canary(canary)))
    huge = {"dtype": "F32", "shape": [2**31, 2**31], "data_offsets": [0, 2**64 - 1]}
    for name, content in {
        "header of an exabyte": lying_header({}, length=2**60),
        "offsets beyond the file": lying_header({"a": huge}),
        "shape that overflows": lying_header(
            {"a": {**huge, "shape": [2**63, 2**63], "data_offsets": [0, 4]}}, data=b"1234"
        ),
        "overlapping tensors": lying_header(
            {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"}, data=bytes(8)
        ),
        "header that is no JSON": lying_header(b"{" * 5000),
        "nested header": lying_header(b'{"a":' + b"[" * 100_000),
        "ten thousand tensors without data": lying_header(
            {str(n): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(10_000)}
        ),
    }.items():
        (copy(name) / "model.safetensors").write_bytes(content)
    for name, section, changes in (
        ("config of a terabyte", "vision_config", {"hidden_size": 2**20, "intermediate_size": 2**22}),
        ("config of a million blocks", "vision_config", {"num_hidden_layers": 10**6}),
        ("config of an immense image", "vision_config", {"image_size": 10**6}),
        ("config of an immense vocabulary", "text_config", {"vocab_size": 2**31}),
        ("config of a negative size", "vision_config", {"hidden_size": -1}),
        ("config with text for numbers", "vision_config", {"hidden_size": "x", "patch_size": {}}),
    ):
        target = copy(name)
        change_json(target / "config.json", lambda content, s=section, c=changes: content[s].update(c))
    (copy("nested config") / "config.json").write_text("[" * 100_000)
    (copy("config that is a list") / "config.json").write_text("[]")
    target = copy("nested tokenizer")
    (target / "tokenizer.json").write_text('{"model":' * 50_000)
    target = copy("tokenizer with an immense id")
    change_json(target / "tokenizer.json", lambda content: content["model"]["vocab"].update(bomb=2**31))
    target = copy("tokenizer of another kind")
    (target / "tokenizer.json").write_text('{"model": {"type": "evil"}}')
    for kind in ("preprocessor_config.json", "centerclip.json"):
        if (model / kind).exists():
            (copy(f"nested {kind}") / kind).write_text("[" * 100_000)
    target = copy("immense preprocessing")
    change_json(target / "preprocessor_config.json", lambda content: content.update(size={"shortest_edge": 10**9}))
    made["pickled checkpoint"] = folder / "evil.pt"
    made["pickled checkpoint"].write_bytes(pickle.dumps({"state_dict": Canary(canary)}))
    made["zipped checkpoint"] = folder / "zip.pt"
    with zipfile.ZipFile(made["zipped checkpoint"], "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"state_dict": Canary(canary)}))
        archive.writestr("archive/version", "3\n")
    made["script archive"] = folder / "script.pt"
    with zipfile.ZipFile(made["script archive"], "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/constants.pkl", pickle.dumps(()))
        archive.writestr("archive/code/__torch__.py", "def forward(self):\n  return 1\n")
        archive.writestr("archive/bomb", bytes(300 * 2**20))
    return made


def open_all(pipe: Connection, models: dict[str, Path], engines: tuple[str, ...]) -> None:
    """Open each with each engine, and encode a sentence where that works; send (name, engine, what became of it)."""
    from centerclip.errors import CenterClipError
    from centerclip.model import CenterCLIP, open_encoder

    # What is opened for the first time imports much: that is not the model's.
    CenterCLIP.from_pretrained(models["good"])
    if "onnxruntime" in engines:
        open_encoder(models["good"], engine="onnxruntime").encode_sentences(["a dog"])
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    for name, path in models.items():
        for engine in engines:
            try:
                open_encoder(path, engine=engine).encode_sentences(["a dog"])  # type: ignore[arg-type]
                became = "opened"
            except CenterClipError as error:
                became = f"{type(error).__name__}: {error}"
            except BaseException as error:
                became = f"FAULT {type(error).__name__}: {str(error)[:300]}"
            pipe.send((name, engine, became))
    pipe.close()
