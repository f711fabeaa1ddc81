"""Token clustering against `torch.cdist`, the plain form and a full SVD, side by side in one run.

    python benchmarks/clustering.py            # about two minutes on two cores
    python benchmarks/clustering.py --rounds 3 # quicker, noisier
    python benchmarks/clustering.py --json     # the first table's rows, for a program

Every form runs once per round, in turn, so that a noisy machine slows all of them; ratios are of medians. Rows in
NumPy are what the ONNX Runtime engine runs between its graphs; the form for a GPU is timed on the CPU here, where it
only shows what its six float32 products cost.
"""

import argparse
import ctypes
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from centerclip.cluster import arrays, centers, kkz, kmedoids, sign_flip, similarity_graph, spectral
from centerclip.cluster.spectral import laplacian

WIDTH = 768
SIZES = {  # name: segments, frames of a segment, patches of a frame, K
    "4 x 147 tokens, K=49 (ViT-B/32, B6-4,49)": (4, 3, 49, 49),
    "15 x 196 tokens, K=49 (ViT-B/32, B6-15,49)": (15, 4, 49, 49),
    "4 x 588 tokens, K=160 (ViT-B/16, B6-4,160)": (4, 3, 196, 160),
}


def video_tokens(segments: int, frames: int, patches: int) -> Tensor:
    """Tokens ``[segments, frames * patches, 768]``: 20 kinds of patch, alike from frame to frame, norm about 4."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randn(segments, 20, WIDTH, generator=generator)
    scene = kinds[:, torch.randint(0, 20, (patches,), generator=generator)]
    scene = scene + 0.6 * torch.randn(segments, patches, WIDTH, generator=generator)
    tokens = scene[:, None] + 0.5 * torch.randn(segments, frames, patches, WIDTH, generator=generator)
    tokens = tokens.flatten(1, 2)
    return tokens * (4 / tokens.norm(dim=2).mean())


def plain_kmedoids(tokens: Tensor, k: int, ids: Tensor | None = None, iterations: int = 100) -> Tensor:
    """k-medoids++ as a first version is written: the medoid update masks a ``[B, K, N, N]`` tensor."""
    distances = torch.cdist(tokens, tokens)
    if ids is None:
        ids = plain_kkz(tokens, distances, k)
    for _ in range(iterations):
        to_medoids = distances.gather(2, ids[:, None].expand(-1, tokens.shape[1], -1))
        members = torch.nn.functional.one_hot(to_medoids.argmin(dim=2), k).mT.bool()  # [B, K, N]
        pairs = members[:, :, :, None] & members[:, :, None, :]
        costs = (distances[:, None] * pairs).sum(dim=3).masked_fill(~members, torch.inf)  # from [B, K, N, N]
        new = costs.argmin(dim=2)
        if torch.equal(new, ids):
            break
        ids = new
    return ids.sort(dim=1).values


def plain_kkz(tokens: Tensor, distances: Tensor, k: int) -> Tensor:
    """KKZ as Algorithm 1 is written: each step compares with all centres again."""
    ids = tokens.norm(dim=2).argmax(dim=1, keepdim=True)
    while ids.shape[1] < k:
        nearest = distances.gather(2, ids[:, None].expand(-1, tokens.shape[1], -1)).amin(dim=2)
        ids = torch.cat([ids, nearest.scatter(1, ids, -1).argmax(dim=1, keepdim=True)], dim=1)
    return ids


def svd_spectral(tokens: Tensor, k: int, neighbours: int) -> Tensor:
    """Spectral clustering as the paper describes it: a full SVD in float32, the sign flip, then k-medoids++."""
    matrix = laplacian(similarity_graph(tokens, neighbours=neighbours)).float()
    left, values, right = torch.linalg.svd(matrix)
    left, values, right = left[..., -k:], values[..., -k:], right[..., -k:, :].mT
    rows = torch.nn.functional.normalize(sign_flip(matrix, left, values, right), dim=2)
    return plain_kmedoids(rows, k)


def race(forms: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each form, all of them once a round."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for form in forms.values():
        form()
    for _ in range(rounds):
        for name, form in forms.items():
            start = time.perf_counter()
            form()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_megabytes(form: Callable[[], object]) -> float:
    """The most memory above the start that the process held during a call (sampled every millisecond)."""
    ctypes.CDLL(None).malloc_trim(0)
    page, highest, done = 4096, 0, threading.Event()
    statm = Path("/proc/self/statm")
    start = int(statm.read_text().split()[1])

    def watch() -> None:
        nonlocal highest
        while not done.is_set():
            highest = max(highest, int(statm.read_text().split()[1]))
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    form()
    done.set()
    watcher.join()
    return max(0, highest - start) * page / 2**20


NAMES = {
    "cdist": "torch.cdist",
    "kkz": "KKZ start alone",
    "kmedoids": "k-medoids++",
    "gpu": "k-medoids++, the form for a GPU",
    "numpy kkz": "KKZ start alone, NumPy",
    "numpy kmedoids": "k-medoids++, NumPy",
    "numpy step": "the whole segment step, NumPy",
    "plain": "plain k-medoids++, [B,K,N,N]",
    "spectral": "spectral",
    "numpy spectral": "spectral, NumPy",
    "solver": "spectral, a full SVD for eigh",
    "svd": "plain spectral: SVD, plain k-medoids++",
}
OTHER_FORM = {"kmedoids": "plain", "numpy kmedoids": "plain", "spectral": "svd", "numpy spectral": "svd"}


@contextmanager
def gpu_form() -> Iterator[None]:
    """Let clustering take the CPU for a device that the host should not wait for."""
    before, arrays.SYNCHRONOUS = arrays.SYNCHRONOUS, ()
    try:
        yield
    finally:
        arrays.SYNCHRONOUS = before


def on_gpu_form(tokens: Tensor, k: int) -> object:
    with gpu_form():
        return kmedoids(tokens, k)


def clustering_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """One row for each size and form: milliseconds, times ``torch.cdist``, times quicker than the plain form, MB."""
    for title, (segments, frames, patches, k) in SIZES.items():
        tokens = video_tokens(segments, frames, patches)
        array = tokens.numpy()
        # As a vision tower leaves them: one sequence a frame, [CLASS] in front.
        hidden = np.pad(array.reshape(segments * frames, patches, WIDTH), ((0, 0), (1, 0), (0, 0)))
        neighbours = 5 * frames + (5 if patches > 100 else 0)
        fast: dict[str, Callable[[], object]] = {
            "cdist": partial(torch.cdist, tokens, tokens),
            "kkz": partial(kkz, tokens, k),
            "kmedoids": partial(kmedoids, tokens, k),
            "numpy kkz": partial(kkz, array, k),
            "numpy kmedoids": partial(kmedoids, array, k),
            "numpy step": partial(centers, hidden, frames=segments * frames, segments=segments, k=k, locate=False),
        }
        slow: dict[str, Callable[[], object]] = {
            "gpu": partial(on_gpu_form, tokens, k),
            "plain": partial(plain_kmedoids, tokens, k),
            "spectral": partial(spectral, tokens, k, neighbours=neighbours),
            "numpy spectral": partial(spectral, array, k, neighbours=neighbours),
            "solver": partial(spectral, tokens, k, neighbours=neighbours, solver="svd"),
            "svd": partial(svd_spectral, tokens, k, neighbours),
        }
        seconds = race(fast, 5 * rounds) | race(slow, max(2, rounds // 3))
        for key, form in NAMES.items():
            other = OTHER_FORM.get(key)
            yield {
                "tokens": title,
                "form": form,
                "milliseconds": 1000 * seconds[key],
                "times_cdist": seconds[key] / seconds["cdist"],
                "times_plain": seconds[other] / seconds[key] if other else None,
                "peak_mb": peak_megabytes((fast | slow)[key]),
            }


def clustering_tables(console: Console, rows: list[dict[str, Any]]) -> None:
    for title in SIZES:
        table = Table(title=f"{title}, width {WIDTH}", title_justify="left")
        for column in ("", "time", "times torch.cdist", "faster than the plain form", "peak extra memory"):
            table.add_column(column, justify="right" if column else "left")
        for row in rows:
            if row["tokens"] == title:
                table.add_row(
                    escape(row["form"]),
                    f"{row['milliseconds']:.1f} ms",
                    f"{row['times_cdist']:.2f}",
                    f"{row['times_plain']:.1f}x" if row["times_plain"] else "",
                    f"{row['peak_mb']:.0f} MB",
                )
        console.print(table)


def eigen_table(console: Console, rounds: int) -> None:
    """Ways to the K smallest eigenvectors, alone."""
    table = Table(title="The K smallest eigenvectors of the graph's Laplacian, alone (float64)", title_justify="left")
    table.add_column("")
    for segments, frames, patches, k in SIZES.values():
        table.add_column(f"{segments} x {frames * patches}, K={k}", justify="right")
    cells: dict[str, list[str]] = {}
    for segments, frames, patches, k in SIZES.values():
        graph = similarity_graph(video_tokens(segments, frames, patches), neighbours=5 * frames)
        matrix = laplacian(graph)
        forms: dict[str, Callable[[], object]] = {
            "full SVD": partial(torch.linalg.svd, matrix),
            "full eigh (used)": partial(torch.linalg.eigh, matrix),
            "LAPACK evr, K of N": partial(part_of_spectrum, matrix, k, "evr"),
            "LAPACK evx, K of N": partial(part_of_spectrum, matrix, k, "evx"),
            "Chebyshev-filtered subspace": partial(chebyshev_subspace, matrix, k),
        }
        seconds = race(forms, max(2, rounds // 2))
        for name in forms:
            error = ""
            if name.startswith("Chebyshev"):
                error = f", error {subspace_error(matrix, k):.0e}"
            cells.setdefault(name, []).append(f"{1000 * seconds[name]:.1f} ms{error}")
    for name, texts in cells.items():
        table.add_row(name, *texts)
    console.print(table)


def part_of_spectrum(matrix: Tensor, k: int, driver: str) -> object:
    """The K smallest eigenvectors by LAPACK's drivers for a part of the spectrum."""
    matrices = matrix.numpy()
    return [scipy.linalg.eigh(m, subset_by_index=[0, k - 1], driver=driver, check_finite=False) for m in matrices]


def chebyshev_subspace(matrix: Tensor, k: int, extra: float = 0.5, degree: int = 24) -> Tensor:
    """The K smallest eigenvectors by one pass of a Chebyshev filter over ``(1 + extra) K`` vectors."""
    count = matrix.shape[1]
    block = min(count, int(k * (1 + extra)))
    values = torch.linalg.eigvalsh(matrix[:1])  # the cut is guessed from the first segment's spectrum
    low, high = values[0, block - 1].item(), 2.0
    centre, half = (low + high) / 2, (high - low) / 2
    shifted = (matrix - centre * torch.eye(count, dtype=matrix.dtype)) / half
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(len(matrix), count, block, dtype=matrix.dtype, generator=generator)
    now = shifted @ before
    for _ in range(degree - 1):
        before, now = now, torch.baddbmm(before, shifted, now, beta=-1, alpha=2)
    basis, _ = torch.linalg.qr(now)
    _, small = torch.linalg.eigh(basis.mT @ matrix @ basis)
    return basis @ small[..., :k]


def subspace_error(matrix: Tensor, k: int) -> float:
    """How far the projector of the Chebyshev form is from the exact one."""
    exact = torch.linalg.eigh(matrix).eigenvectors[..., :k]
    filtered = chebyshev_subspace(matrix, k)
    return (exact @ exact.mT - filtered @ filtered.mT).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print the rows of the first tables as JSON, and stop")
    arguments = parser.parse_args()
    rows = list(clustering_rows(arguments.rounds))
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    console = Console(width=120)
    console.print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, NumPy {np.__version__}, CPU, generated tokens\n"
    )
    clustering_tables(console, rows)
    eigen_table(console, arguments.rounds)


if __name__ == "__main__":
    main()
