"""Train the upper half of the vision tower towards the teacher's vectors, on cached tokens; resumable at any moment.

    python recipes/small/vision.py WORK --text text [--out vision] [--steps 6000] [--cluster 0.5]

The student's tokens come from views degraded as film is, the teacher saw them clean. A step takes a random part of
the tokens, or their k-medoids as an index does; each counts for as many as it stands for. Four terms: the vector
itself; its similarities to 2,048 other photographs; its similarities to 2,048 captions; its own caption. The rate stays
constant until the last ``--cooldown`` steps, so a run can be made longer without starting again. The weights that are
kept are a running mean.
"""

import argparse
import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cache import LOWER, TOKENS_OF_VAL
from photos import CHUNK, Photos
from text import Texts, recall
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, softmax
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import VisionTextDualEncoderModel
from vectors import Space, stored

from centerclip.cluster import kmedoids

BATCH, BANK, PATCHES = 64, 2048, 256  # views of a step; other vectors that they are compared with; tokens of a picture
RATE, LAYER_DECAY, DECAY, WARM_UP = 3e-4, 0.8, 0.05, 100
SHARPNESS = 15.0  # of the similarities whose distribution is copied
SAVE_SECONDS, EVALUATE_STEPS = 300, 250


class Upper(nn.Module):
    """The upper half of the tower: tokens [B, 1 + N, 384] to vectors of norm 1, [B, D]."""

    def __init__(self, folder: Path, width: int) -> None:
        super().__init__()
        # On a CPU plain products are three times as fast for so few tokens as the fused attention and its gradient.
        model = VisionTextDualEncoderModel.from_pretrained(folder, attn_implementation="eager")
        self.blocks = model.vision_model.encoder.layer[LOWER:]
        self.norm, self.projection = model.vision_model.layernorm, model.visual_projection
        if width != self.projection.out_features:
            self.projection = nn.Linear(self.projection.in_features, width, bias=False)

    def forward(self, tokens: Tensor, sizes: Tensor | None = None) -> Tensor:
        """``sizes [B, N]``: how many patches each token stands for; one by default."""
        return normalize(self.projection(self.features(tokens, sizes)).float(), dim=1)

    def features(self, tokens: Tensor, sizes: Tensor | None = None) -> Tensor:
        """What the projection is given, [B, 384]."""
        bias = None
        if sizes is not None:
            bias = torch.cat([torch.zeros(len(tokens), 1), sizes.log()], dim=1)[:, None, None]
        for block in self.blocks:
            tokens = block(tokens, attention_mask=bias)
        return self.norm(tokens[:, 0])

    @torch.no_grad()
    def encode(self, tokens: np.ndarray) -> np.ndarray:
        """float32 [N, D] from all tokens of clean views."""
        pieces = [torch.from_numpy(tokens[at : at + 32].astype(np.float32)) for at in range(0, len(tokens), 32)]
        with torch.autocast("cpu", torch.bfloat16):  # evaluate.py measures what is kept in float32
            return torch.cat([self(piece) for piece in pieces]).numpy()

    def groups(self) -> list[dict[str, Any]]:
        """Weights with a rate that falls by LAYER_DECAY from block to block downwards."""
        groups = [{"params": [*self.projection.parameters(), *self.norm.parameters()], "full_lr": RATE}]
        for place, block in enumerate(reversed(self.blocks), 1):
            groups.append({"params": [*block.parameters()], "full_lr": RATE * LAYER_DECAY**place})
        return groups


def part_of(tokens: Tensor, keep: float) -> tuple[Tensor, Tensor]:
    """A random share of the patch tokens, and how many patches each stands for: [B, 1 + K, D], [B, K]."""
    count = round(keep * (tokens.shape[1] - 1))
    places = torch.rand(len(tokens), tokens.shape[1] - 1).argsort(1)[:, :count] + 1
    kept = tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[2]))
    return torch.cat([tokens[:, :1], kept], dim=1), torch.full((len(tokens), count), PATCHES / count)


def clustered(tokens: Tensor, keep: float) -> tuple[Tensor, Tensor]:
    """The medoids of the patch tokens, and how many patches each stands for: [B, 1 + K, D], [B, K]."""
    patches = tokens[:, 1:]
    ids, assignment = kmedoids(patches, round(keep * patches.shape[1]))
    kept = patches.gather(1, ids[..., None].expand(-1, -1, tokens.shape[2]))
    sizes = torch.zeros(ids.shape).scatter_add_(1, assignment, torch.ones(assignment.shape))
    return torch.cat([tokens[:, :1], kept], dim=1), sizes * (PATCHES / patches.shape[1])


def copied(vectors: Tensor, targets: Tensor, bank: Tensor) -> Tensor:
    """How far the similarities of the student's vectors to a bank are from those of the teacher's."""
    ours, theirs = (SHARPNESS * part @ bank.T for part in (vectors, targets))
    return kl_div(log_softmax(ours, 1), softmax(theirs, 1), reduction="batchmean")


def trained(folder: Path) -> dict[str, Tensor]:
    """The running mean of the weights of a run."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)["mean"]
    return {name.removeprefix("module."): tensor for name, tensor in state.items() if name.startswith("module.")}


@torch.no_grad()
def write_vectors(model: Upper, work: Path, folder: Path) -> None:
    """The student's features of cached views that have captions, laid out as the teacher's vectors."""
    for path in sorted((work / "tokens").glob("*/*.npy")):
        target = folder / path.parent.name / path.name
        if target.exists() or path.parent.name.startswith("bare"):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        tokens = np.load(path)
        count = tokens.shape[1] - 1
        parts = [torch.from_numpy(tokens[at : at + 32].astype(np.float32)) for at in range(0, len(tokens), 32)]
        with torch.autocast("cpu", torch.bfloat16):
            rows = [
                model.features(part, torch.full((len(part), count), PATCHES / count)).float().numpy() for part in parts
            ]
        with target.with_suffix(".partial").open("wb") as file:
            np.save(file, np.concatenate(rows).astype(np.float16))
        target.with_suffix(".partial").rename(target)
    np.save(folder / "projection.npy", model.projection.weight.numpy())


class Data:
    """Tokens, targets and captions of the views, as far as the cache has come."""

    def __init__(self, work: Path, space: Space, texts: Texts | None, cached_texts: Path) -> None:
        self.photos, self.space, self.work = Photos(work / "photos"), space, work
        self.reload()
        self.texts_of: dict[str, list[int]] = {}
        self.texts = np.zeros((0, space.basis.shape[1]), np.float32)
        if texts is None:
            return
        files = self.photos.in_split("train")  # all of them: views of the others are still being cached
        sentences = [(file, caption) for file in files for caption in self.photos.captions[file]]
        if not cached_texts.exists() or len(np.load(cached_texts, mmap_mode="r")) != len(sentences):
            np.save(cached_texts, texts.encode([caption for _, caption in sentences]).astype(np.float16))
        self.texts = np.load(cached_texts).astype(np.float32)
        for place, (file, _) in enumerate(sentences):
            self.texts_of.setdefault(file, []).append(place)

    def reload(self) -> None:
        """Take up what has been cached since."""
        tokens, files, targets = [], [], []
        for folder in sorted((self.work / "tokens").glob("*-[0-9]")):
            views = self.photos.views(folder.name)
            for path in sorted(folder.glob("*.npy")):
                start, taught = int(path.stem) * CHUNK, self.work / "teacher" / folder.name / path.name
                if taught.exists():  # tokens alone are for the text tower
                    tokens.append(np.load(path, mmap_mode="r"))
                    files += [view.file for view in views[start : start + CHUNK]]
                    targets.append(self.space(np.load(taught).astype(np.float32)))
        self.known = tokens, files, np.concatenate(targets)  # in one go: a thread is reading

    def batch(self, seed: int) -> list[Tensor]:
        """Tokens, targets, a bank of other targets, a bank of captions, and each view's own caption in it, or -1."""
        rng, (tokens, files, targets) = random.Random(seed), self.known
        places, bank = rng.sample(range(len(files)), BATCH), rng.sample(range(len(files)), min(BANK, len(files)))
        starts = np.cumsum([0] + [len(part) for part in tokens])
        parts = np.searchsorted(starts, places, side="right") - 1
        rows = np.stack([tokens[part][place - starts[part]] for part, place in zip(parts, places, strict=True)])
        own, chosen = np.full(BATCH, -1), []
        for row, place in enumerate(places):
            options = self.texts_of.get(files[place])
            if options:
                own[row] = len(chosen)
                chosen.append(rng.choice(options))
        chosen += rng.sample(range(len(self.texts)), min(BANK, len(self.texts)))
        arrays = rows.astype(np.float32), targets[places], targets[bank], self.texts[chosen], own
        return [torch.from_numpy(array) for array in arrays]


def main() -> None:
    """Resume or start, train, evaluate, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--text", default="text", help="the trained text tower and its space")
    parser.add_argument(
        "--images-only", action="store_true", help="leave captions out; of --text only the space is used"
    )
    parser.add_argument("--init", default="init")
    parser.add_argument("--out", default="vision")
    parser.add_argument("--start", help="a vision tower that was trained before, such as vision")
    parser.add_argument("--write", help="only write the vectors of cached views to this folder")
    parser.add_argument("--rate", type=float, default=1.0, help="a factor of the learning rates")
    parser.add_argument("--keep", type=float, default=0.67, help="share of the cached patch tokens in a step")
    parser.add_argument("--cluster", type=float, default=0.0, help="share of the steps whose tokens are medoids")
    parser.add_argument("--caption-weight", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--cooldown", type=int, default=600)
    parser.add_argument("--until", type=int, help="stop after this step, to resume with other options")
    args = parser.parse_args()
    torch.manual_seed(0)
    out = args.work / args.out
    out.mkdir(exist_ok=True)
    space = Space.load(args.work / args.text / "space.npz")
    width = space.basis.shape[1]
    texts = None
    if not args.images_only:
        texts = Texts(args.work / args.init, width)
        texts.load_state_dict(torch.load(args.work / args.text / "best.pt", weights_only=True)["model"])
    data = Data(args.work, space, texts, args.work / args.text / "captions.npy")
    val_views, val_raw = stored(data.photos, args.work / "teacher", "val-whole")
    val_captions = [data.photos.captions[view.file] for view in val_views[:TOKENS_OF_VAL]]
    val_texts = texts.encode([caption for part in val_captions for caption in part]) if texts else None
    val_image_of = np.array([place for place, part in enumerate(val_captions) for _ in part])
    val_tokens = np.concatenate([np.load(path) for path in sorted((args.work / "tokens/val-whole").glob("*.npy"))])
    val_targets = space(val_raw[:TOKENS_OF_VAL])

    model = Upper(args.work / args.init, width)
    optimizer = torch.optim.AdamW(model.groups(), lr=RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    step, log = 0, [{"teacher": recall(val_texts, val_targets, val_image_of)} if texts else {}]
    checkpoint = out / "checkpoint.pt"
    if args.start and not checkpoint.exists():
        for part in (model, mean.module):
            part.load_state_dict(trained(args.work / args.start))
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        mean.load_state_dict(state["mean"])
        optimizer.load_state_dict(state["optimizer"])
        step, log = state["step"], state["log"]
    if args.write:
        write_vectors(mean.module, args.work, args.work / args.write)
        return
    print(len(data.known[1]), "views; step", step, log[0], flush=True)

    stop = False

    def ask_to_stop(*_: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, ask_to_stop)
    saved, pool, cosines = time.monotonic(), ThreadPoolExecutor(1), list[float]()
    coming = pool.submit(data.batch, step)
    last = min(args.steps, args.until or args.steps)
    while step < last and not stop:
        tokens, targets, bank, captions, own = coming.result()
        coming = pool.submit(data.batch, step + 1)
        share = min(1.0, (step + 1) / WARM_UP, (args.steps - step) / max(1, args.cooldown))
        for group in optimizer.param_groups:
            group["lr"] = args.rate * group["full_lr"] * share
        choose = clustered if random.Random(step).random() < args.cluster else part_of
        with torch.autocast("cpu", torch.bfloat16):
            vectors = model(*choose(tokens, args.keep))
        agreement = (vectors * targets).sum(1).mean()
        loss = 1 - agreement + copied(vectors, targets, bank)
        if texts:
            loss = loss + copied(vectors, targets, captions)
        has = own >= 0
        if has.any():
            loss = loss + args.caption_weight * cross_entropy(20 * vectors[has] @ captions.T, own[has])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean.update_parameters(model)
        step += 1
        cosines.append(agreement.item())
        if step % 25 == 0:
            cosine = np.mean(cosines[-25:])
            print(f"{step} loss {loss.item():.4f} cosine {cosine:.4f} cpu_s {time.process_time():.0f}", flush=True)
        if step % EVALUATE_STEPS == 0 or step == last:
            ours = mean.module.encode(val_tokens)
            row = {"step": step, "cosine": round(float((ours * val_targets).sum(1).mean()), 4)}
            if texts:
                row |= recall(val_texts, ours, val_image_of)
            row |= {"cpu_s": round(time.process_time()), "views": len(data.known[1])}
            log.append(row)
            print(json.dumps(row), flush=True)
            data.reload()
        if time.monotonic() - saved > SAVE_SECONDS or step == last or stop:
            state = {"model": model.state_dict(), "mean": mean.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"step": step, "log": log}, out / "checkpoint.partial")
            (out / "checkpoint.partial").rename(checkpoint)
            (out / "log.json").write_text(json.dumps(log, indent=1))
            saved = time.monotonic()
    if step < last:
        raise SystemExit(143)  # asked to stop: the next start resumes


if __name__ == "__main__":
    main()
