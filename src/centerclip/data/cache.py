"""Keeps features of frozen models: one safetensors file for each video, model and setting, written whole."""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

WHOLE_BYTES = 16 * 2**20  # files up to this size are hashed whole
SAMPLES, SAMPLE_BYTES = 16, 2**20  # of larger files, so many parts: reading films twice would cost more than decoding


def content_key(path: str | Path) -> str:
    """32 hex digits that name a file by what is in it, wherever it lies.

    Of large files the size and evenly spread parts count, first and last included.
    """
    digest = hashlib.blake2b(digest_size=16)
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}\0".encode())
        if size <= WHOLE_BYTES:
            digest.update(file.read())
        else:
            for sample in range(SAMPLES):
                file.seek(sample * (size - SAMPLE_BYTES) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


class FeatureCache:
    """Features by video, for one model and one setting.

    Any number of processes may share a folder: entries appear whole, and an entry that is damaged counts as absent.

    Args:
        folder: where entries are kept; another model or setting keeps its own beside them.
        model: fingerprint of the weights.
        setting: everything else that changes features, such as ``B6-4,49 frames=12 size=224``.
    """

    def __init__(self, folder: str | Path, *, model: str, setting: str) -> None:
        self.identity = f"{model}\n{setting}"
        self.folder = Path(folder) / hashlib.sha256(self.identity.encode()).hexdigest()[:16]

    def path(self, key: str) -> Path:
        """Where the entry of a video is. ``key`` is a :func:`content_key` or any other name; it is hashed."""
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        return self.folder / name[:2] / f"{name}.safetensors"

    def get(self, key: str) -> dict[str, Tensor] | None:
        """The tensors of a video, or None when they are not there, damaged or of something else."""
        try:
            with safe_open(self.path(key), framework="pt") as file:
                described = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except (OSError, SafetensorError):
            return None
        return tensors if described == self._description(key, tensors) else None

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep the tensors of a video; an earlier entry is replaced in one step."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        handle, partial = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        os.close(handle)
        try:
            save_file(plain, partial, metadata=self._description(key, plain))
            Path(partial).replace(path)
        finally:
            Path(partial).unlink(missing_ok=True)

    def get_or_compute(self, key: str, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors of a video, computed and kept if they are not there."""
        if (known := self.get(key)) is not None:
            return known
        tensors = dict(compute())
        self.put(key, tensors)
        return tensors

    def _description(self, key: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """What an entry says about itself; the checksum notices bits that changed on the disk."""
        checksum = 0
        for name in sorted(tensors):
            checksum = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().data, checksum)
        return {"key": key, "identity": self.identity, "checksum": f"{checksum:08x}"}
