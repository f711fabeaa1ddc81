"""Text search over HTTP: speed, errors and memory with 1, 8 and 64 clients.

    python benchmarks/serve.py                    # 100,000 segments, 10 seconds for each number of clients
    python benchmarks/serve.py --segments 20000 --seconds 3
    python benchmarks/serve.py --folder FOLDER    # keeps the model and the index there, for the next time

Goals, with two processors: at least 60 requests a second with one client and 120 with 64, 95 % of them within 60 ms and
900 ms, in memory that does not grow. The server runs in a process of its own, over an index of random vectors and with
a CLIP ViT-B/32 of random weights, in the precision that is chosen for this machine; everything goes over the loopback.
Every request has a new sentence, so that each has to be encoded. At the end the server is stopped while requests run,
and has to answer them.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

CLIENTS = (1, 8, 64)
SEGMENTS_PER_VIDEO = 20
WORDS = ["a", "dog", "cat", "man", "woman", "child", "red", "blue", "old", "runs", "jumps", "sits", "sings"]
WORDS += ["cooks", "rides", "near", "over", "under", "house", "river", "car"]
err = Console(stderr=True)


def make_model(folder: Path) -> None:
    """A CLIP ViT-B/32 with random weights."""
    import torch
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

    from centerclip import CenterCLIP
    from centerclip.model.backbone import Backbone
    from centerclip.model.preprocess import Preprocess
    from centerclip.model.tokenizer import byte_letters

    torch.manual_seed(0)
    letters = list(byte_letters().values())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    merges = []
    for word in WORDS:  # a token each, as in a real vocabulary: the time depends on how many there are
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merges.append((parts[0], parts[1]))
            parts = [parts[0] + parts[1], *parts[2:]]
            tokens.append(parts[0])
    merges, tokens = list(dict.fromkeys(merges)), list(dict.fromkeys(tokens))
    tokens += [f"unused{n}" for n in range(49_406 - len(tokens))] + ["<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(vocab={token: n for n, token in enumerate(tokens)}, merges=merges, model_max_length=77)
    backbone = Backbone(CLIPModel(CLIPConfig()).eval(), tokenizer, Preprocess(size=224))  # its defaults are ViT-B/32's
    CenterCLIP(backbone, clustering="none", frames=12).eval().save_pretrained(folder)


def make_index(folder: Path, model_folder: Path, segments: int) -> None:
    from centerclip.model.engine import open_encoder
    from centerclip.search.folder import DEFAULT_EVERY
    from centerclip.search.index import IndexState
    from centerclip.search.query import Encoder, settings_of
    from centerclip.search.sqlite import Database
    from centerclip.search.store import File, Segments, Video

    model = open_encoder(model_folder, engine="onnxruntime")
    settings = replace(settings_of(model, model_folder, DEFAULT_EVERY), roots=[str(folder)])
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(folder)
    database.save_settings(settings)
    state = IndexState(folder, settings, database.store(settings), Encoder(settings, model))
    random = np.random.default_rng(0)
    edges = np.arange(SEGMENTS_PER_VIDEO + 1, dtype=np.float32) * 3
    count = segments // SEGMENTS_PER_VIDEO
    for first in range(0, count, 500):
        added = []
        for number in range(first, min(first + 500, count)):
            vectors = random.standard_normal((SEGMENTS_PER_VIDEO, settings.width)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            video = Video(f"{number:032x}", float(edges[-1]), 640, 360, 0.0)
            added.append((video, Segments(edges[:-1], edges[1:], vectors), ()))
        state.store.add(added, [File(str(folder / f"{video.id}.mp4"), 1, 1, video.id) for video, _, _ in added])
    state.calibration.encode(state.encoder)
    state.store.tidy(state.calibration.vectors)
    state.calibration.measure()


def start(index: Path, cache: Path) -> tuple[subprocess.Popen[str], str]:
    script = "from centerclip.cli import main; main()"
    command = [sys.executable, "-c", script, "serve", "--index", index, "--cache", cache, "--port", "0", "--no-open"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    address = process.stdout.readline().split()[-1]
    for _ in range(1200):
        try:
            if httpx.get(f"{address}api/status", timeout=30).json()["ready"]:
                return process, address
        except httpx.ConnectError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not come up")


async def load(address: str, clients: int, seconds: float, numbers: "itertools.count[int]") -> tuple[list[float], int]:
    """Times of all requests in seconds, and how many failed; each client sends the next request after a response."""
    times: list[float] = []
    errors = 0
    end = time.perf_counter() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:

        async def one() -> None:
            nonlocal errors
            while time.perf_counter() < end:
                number = next(numbers)
                sentence = " ".join(WORDS[number * step % len(WORDS)] for step in (1, 3, 5, 7)) + f" {number}"
                began = time.perf_counter()
                answer = await client.get("/api/v1/search", params={"q": sentence, "top": 24})
                times.append(time.perf_counter() - began)
                errors += answer.status_code != 200 or len(answer.json()["hits"]) != 24

        await asyncio.gather(*(one() for _ in range(clients)))
    return times, errors


def batches(address: str) -> tuple[float, float]:
    lines = dict(line.rsplit(" ", 1) for line in httpx.get(f"{address}metrics").text.splitlines() if line[0] != "#")
    return float(lines["centerclip_sentences_total"]), float(lines["centerclip_sentence_batches_total"])


async def stop_while_busy(address: str, process: "subprocess.Popen[str]") -> tuple[int, int]:
    """Send 16 requests, stop the server, and count the responses."""
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        asked = [asyncio.create_task(client.get("/api/v1/search", params={"q": f"stop {n}"})) for n in range(16)]
        status = 0
        while not status:  # when the first is answered, the others have been sent
            status = sum(task.done() for task in asked)
            await asyncio.sleep(0.001)
        process.send_signal(signal.SIGINT)
        answers = await asyncio.gather(*asked, return_exceptions=True)
    good = sum(isinstance(answer, httpx.Response) and answer.status_code == 200 for answer in answers)
    return good, len(asked)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--segments", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=10.0, help="for each number of clients")
    options.add_argument("--folder", type=Path, help="keep the model and the index here")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = args.folder or Path(scratch)
        os.environ["CENTERCLIP_CACHE"] = str(base / "cache")  # for the converted model
        with err.status("making a model and an index of random vectors"):
            if not (base / "model").exists():
                make_model(base / "model")
            index = base / f"index-{args.segments}"
            if not index.exists():
                make_index(index, base / "model", args.segments)
        with err.status("starting the server"):
            process, address = start(index, base / "cache")
        server, numbers, rows = psutil.Process(process.pid), itertools.count(), []
        asyncio.run(load(address, 8, 2.0, numbers))  # warm
        for clients in CLIENTS:
            with err.status(f"{clients} clients"):
                before, (sentences, many) = server.memory_info().rss, batches(address)
                began, busy = time.perf_counter(), sum(server.cpu_times()[:2])
                times, errors = asyncio.run(load(address, clients, args.seconds, numbers))
                taken, busy = time.perf_counter() - began, sum(server.cpu_times()[:2]) - busy
                (sentences_after, many_after), after = batches(address), server.memory_info().rss
            p50, p95 = (1000 * float(np.percentile(times, share)) for share in (50, 95))
            rows.append(
                {
                    "clients": clients,
                    "requests_a_second": len(times) / taken,
                    "p50_ms": p50,
                    "p95_ms": p95,
                    "processor_ms": 1000 * busy / len(times),  # of the server, for each request
                    "errors": errors,
                    "sentences_a_batch": (sentences_after - sentences) / max(1.0, many_after - many),
                    "memory_mb": after / 1e6,
                    "grown_mb": (after - before) / 1e6,
                }
            )
        answered, asked = asyncio.run(stop_while_busy(address, process))
        code = process.wait(60)
    if args.json:
        print(json.dumps({"segments": args.segments, "rows": rows, "stop": {"answered": answered, "asked": asked}}))
        return
    table = Table(title=f"Text search over {args.segments:,} segments, {os.cpu_count()} cores")
    for name in ("clients", "requests/s", "p50 ms", "p95 ms", "processor ms", "errors", "batch", "MB", "grown MB"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = (row["clients"], row["errors"])
        table.add_row(
            f"{cells[0]}", f"{row['requests_a_second']:.1f}", f"{row['p50_ms']:.0f}", f"{row['p95_ms']:.0f}",
            f"{row['processor_ms']:.1f}",
            f"{cells[1]}", f"{row['sentences_a_batch']:.1f}", f"{row['memory_mb']:.0f}", f"{row['grown_mb']:+.0f}",
        )  # fmt: skip
    Console().print(table)
    print(f"Stopped with {asked} requests running: {answered} answered, exit code {code}.")


if __name__ == "__main__":
    main()
