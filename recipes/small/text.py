"""Train the text tower into the space of cached image vectors.

    python recipes/small/text.py WORK --out text-1 --rate 5
    python recipes/small/text.py WORK --out text --start text-1 --frozen 3 --pairs 512 --steps 300

WORK holds photos/, minilm/ and what the other steps wrote: teacher/, init/, nouns.npz. Three terms: captions find their
photograph among the others of the batch; a noun phrase finds the mean of the photographs that it occurs with, a noun
that captions hardly have finds where CLIP's text vectors put it (``nouns.py``); words of the whole vocabulary keep the
neighbours that they have in MiniLM. Word embeddings stay as they are. The weights that are kept are a running mean, at
the step that does best on val and, where it is cached, on Flickr8k's dev split.

Where the image vectors are features before their projection (``vision.py --write``), that projection is trained too.
"""

import argparse
import collections
import json
import random
import re
import time
from pathlib import Path

import numpy as np
import torch
from captions import phrases, shortened
from nouns import RARE, mapped, photographs_of
from photos import Photos
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, softmax
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, BertModel, VisionTextDualEncoderModel
from vectors import Space, stored

GROUP = 64  # sentences that are padded to one length
RATE, HEAD_RATE, DECAY, WARM_UP = 1e-4, 2e-4, 0.05, 40
MAX_TOKENS = 40
KEEP_NEIGHBOURS = 1.0  # weight of the third term
OPENINGS = ("a video of", "a clip of", "footage of", "a photo of", "a picture of")  # how people begin, for one in eight
UNSEEN = re.findall(  # left out of training by --unseen, to measure words which no caption had
    r"\w+",
    "zebra giraffe kite umbrella broccoli laptop toothbrush snowboard toilet elephant motorcycle donut vase hydrant "
    "skateboard sandwich refrigerator sheep scissors banana surfboard suitcase bear carrot clock tie "
    "boat bench horse cake",
)


class Texts(nn.Module):
    """Sentences to vectors of norm 1, [B, D]. What the first ``frozen`` layers make of a sentence is kept."""

    def __init__(self, folder: Path, width: int, frozen: int = 0) -> None:
        super().__init__()
        model = VisionTextDualEncoderModel.from_pretrained(folder)
        self.tower, self.projection, self.frozen = model.text_model, model.text_projection, frozen
        if width != self.projection.out_features:
            self.projection = nn.Linear(self.tower.config.hidden_size, width, bias=False)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tower.embeddings.requires_grad_(False)
        self.tower.encoder.layer[:frozen].requires_grad_(False)
        self.states: dict[str, Tensor] = {}  # float16 [tokens, 384]
        self.image_projection: nn.Linear | None = None  # of image features, where it is trained too

    def images(self, vectors: np.ndarray) -> Tensor:
        """Image vectors of norm 1, [B, D]: as they are, or projected."""
        rows = torch.from_numpy(vectors)
        return rows if self.image_projection is None else normalize(self.image_projection(rows), dim=1)

    def forward(self, texts: list[str]) -> Tensor:
        """Sentences to vectors, [B, D]; those of like length together, so that little is padded."""
        self._remember(sorted(set(texts) - self.states.keys()))
        order = sorted(range(len(texts)), key=lambda place: len(self.states[texts[place]]))
        parts = []
        for start in range(0, len(order), GROUP):
            hidden = [self.states[texts[place]].float() for place in order[start : start + GROUP]]
            parts.append(self.tower.pooler(self._layers(hidden, self.tower.encoder.layer[self.frozen :])))
        return normalize(self.projection(torch.cat(parts)[torch.tensor(order).argsort()]).float(), dim=1)

    def _layers(self, rows: list[Tensor], layers: nn.ModuleList) -> Tensor:
        mask = pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], batch_first=True)
        hidden = pad_sequence(rows, batch_first=True)
        for layer in layers:
            hidden = layer(hidden, mask[:, None, None])
        return hidden

    @torch.no_grad()
    def _remember(self, texts: list[str]) -> None:
        if not texts:
            return
        was_training = self.training
        self.eval()  # no dropout in what is kept
        ids = self.tokenizer(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        for start in range(0, len(order), GROUP):
            places = order[start : start + GROUP]
            padded = pad_sequence([torch.tensor(ids[place]) for place in places], batch_first=True)
            embedded = self.tower.embeddings(input_ids=padded)
            rows = [row[: len(ids[place])] for row, place in zip(embedded, places, strict=True)]
            hidden = self._layers(rows, self.tower.encoder.layer[: self.frozen])
            for place, row in zip(places, hidden, strict=True):
                self.states[texts[place]] = row[: len(ids[place])].half()
        self.train(was_training)

    @torch.no_grad()
    def encode(self, texts: list[str]) -> np.ndarray:
        """float32 [N, D]."""
        was_training = self.training
        self.eval()
        with torch.autocast("cpu", torch.bfloat16):  # evaluate.py measures what is kept in float32
            out = torch.cat([self(texts[start : start + 4096]) for start in range(0, len(texts), 4096)]).numpy()
        self.train(was_training)
        return out


@torch.no_grad()
def sentence_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    """MiniLM's own sentence vectors: the mean of its tokens, of norm 1."""
    tower, tokenizer = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    out = []
    for start in range(0, len(texts), 512):
        batch = tokenizer(texts[start : start + 512], padding=True, truncation=True, max_length=16, return_tensors="pt")
        mask = batch["attention_mask"][..., None]
        hidden = tower(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        out.append(normalize((hidden * mask).sum(1) / mask.sum(1), dim=1).numpy())
    return np.concatenate(out)


def recall(texts: np.ndarray, images: np.ndarray, image_of: np.ndarray) -> dict[str, float]:
    """Text to image: R@1, R@5, R@10 in per cent."""
    scores = texts @ images.T
    ranks = (scores > scores[np.arange(len(texts)), image_of][:, None]).sum(1)
    return {f"R{k}": round(100 * float((ranks < k).mean()), 2) for k in (1, 5, 10)}


def found_of(model: Texts, captions: list[list[str]], images: np.ndarray) -> dict[str, float]:
    """:func:`recall` of the first two captions of each photograph."""
    texts = [text for part in captions for text in part[:2]]
    return recall(model.encode(texts), images, np.array([at for at, part in enumerate(captions) for _ in part[:2]]))


def unseen_precision(model: Texts, images: np.ndarray, captions: list[list[str]]) -> float:
    """Of the ten photographs nearest to "a <word>", how many have the word in a caption: mean over the words, in %."""
    scores = model.encode([f"a {word}" for word in UNSEEN]) @ images.T
    hits = []
    for word, row in zip(UNSEEN, scores, strict=True):
        has = np.array([any(word in caption.lower() for caption in part) for part in captions])
        hits.append(has[np.argsort(-row)[:10]].sum() / max(1, min(10, has.sum())))
    return round(100 * float(np.mean(hits)), 2)


def contrast(texts: Tensor, images: Tensor, scale: Tensor) -> Tensor:
    """Both ways: row i of one belongs to row i of the other."""
    scores, target = scale * texts @ images.T, torch.arange(len(texts))
    return (
        cross_entropy(scores, target, label_smoothing=0.1) + cross_entropy(scores.T, target, label_smoothing=0.1)
    ) / 2


def neighbours_lost(vectors: Tensor, reference: Tensor, rows: slice, temperature: float = 0.1) -> Tensor:
    """How far the neighbourhoods of some texts are from those in MiniLM."""
    own = torch.eye(len(vectors), dtype=torch.bool)[rows]
    ours = (vectors[rows] @ vectors.T / temperature).masked_fill(own, -1e4)
    theirs = (reference[rows] @ reference.T / temperature).masked_fill(own, -1e4)
    return kl_div(log_softmax(ours, 1), softmax(theirs, 1), reduction="batchmean")


def main() -> None:
    """Train, evaluate every 50 steps, keep the best."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", default="text")
    parser.add_argument("--init", default="init")
    parser.add_argument("--start", help="a text tower that was trained before, such as text")
    parser.add_argument("--images", default="teacher", help="the folder of image vectors")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--until", type=int, help="stop after this step, though the rate falls until --steps")
    parser.add_argument("--pairs", type=int, default=1024, help="captions in a batch; a quarter as many noun phrases")
    parser.add_argument("--frozen", type=int, default=6, help="layers that stay as they are")
    parser.add_argument("--rate", type=float, default=1.0, help="a factor of both learning rates")
    parser.add_argument("--phrase-weight", type=float, default=0.5)
    parser.add_argument("--neighbour-weight", type=float, default=KEEP_NEIGHBOURS)
    parser.add_argument("--nouns", action="store_true", help="also nouns that captions hardly have, from nouns.npz")
    parser.add_argument("--unseen", action="store_true", help="leave some words out, to see whether they are found")
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = random.Random(0)
    out = args.work / args.out
    out.mkdir(exist_ok=True)

    photos = Photos(args.work / "photos")
    names = [folder.name for folder in sorted((args.work / args.images).glob("train-*"))]
    parts = [stored(photos, args.work / args.images, name) for name in names]
    files = [view.file for views, _ in parts for view in views]
    raw = np.concatenate([vectors for _, vectors in parts])
    given = args.work / args.images / "projection.npy"  # features of the student, and how they were projected
    before = Space.load(args.work / args.start / "space.npz") if args.start else None
    space = before or Space.fit(raw, args.width)
    space.save(out / "space.npz")
    images = raw if given.exists() else space(raw)
    val = {}
    for name in ("val-whole", "flickr-val-whole"):
        if (args.work / args.images / name).exists():
            views, rows = stored(photos, args.work / args.images, name)
            captions = [photos.captions[view.file] for view in views]
            val[name] = captions, rows if given.exists() else space(rows)
    val_captions, val_images = val["val-whole"]
    if args.unseen:
        seen = [not any(w in c.lower() for c in photos.captions[file] for w in UNSEEN) for file in files]
        images, files = images[seen], [file for file, kept in zip(files, seen, strict=True) if kept]

    by_phrase: dict[str, set[int]] = collections.defaultdict(set)
    for place, file in enumerate(files):
        for caption in photos.captions[file]:
            for phrase in phrases(caption):
                by_phrase[phrase].add(place)
    known = [phrase for phrase, places in by_phrase.items() if len(places) >= 3]
    centres = np.stack([images[list(by_phrase[phrase])].mean(0) for phrase in known])
    if not given.exists():
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    weights = list(np.sqrt([len(by_phrase[phrase]) for phrase in known]))
    if args.nouns:
        with np.load(args.work / "nouns.npz") as file:
            nouns, vectors = list(file["nouns"]), file["vectors"]
        places = photographs_of(nouns, [photos.captions[file] for file in files])
        where = mapped(vectors, images, places, np.array([noun in UNSEEN for noun in nouns]) & args.unseen)
        rare = [at for at, found in enumerate(places) if len(found) < RARE and nouns[at] not in by_phrase]
        known += [nouns[at] for at in rare]
        centres, weights = np.concatenate([centres, where[rare]]), weights + [RARE**0.5] * len(rare)
    model = Texts(args.work / args.init, args.width, args.frozen)
    if given.exists():
        start = torch.from_numpy(np.load(given))
        model.image_projection = nn.Linear(start.shape[1], len(start), bias=False)
        model.image_projection.weight.data.copy_(start)
    if args.start:
        state = torch.load(args.work / args.start / "best.pt", weights_only=True)["model"]
        model.load_state_dict(model.state_dict() | state)  # that of a first run has no projection of images
    words = [word for word in model.tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 2]
    cached = args.work / "minilm-words.npy"
    if not cached.exists():
        np.save(cached, sentence_vectors(args.work / "minilm", words))
    reference = torch.from_numpy(np.concatenate([sentence_vectors(args.work / "minilm", known), np.load(cached)]))
    print(len(files), "views", len(known), "phrases", len(words), "words", flush=True)

    scale = nn.Parameter(torch.tensor(np.log(20.0)))
    body = [weight for weight in model.tower.parameters() if weight.requires_grad]
    groups = [{"params": body, "lr": args.rate * RATE}]
    heads = [
        *model.projection.parameters(),
        *(model.image_projection.parameters() if model.image_projection else ()),
        scale,
    ]
    groups.append({"params": heads, "lr": args.rate * HEAD_RATE})
    optimizer = torch.optim.AdamW(groups, weight_decay=DECAY, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(step / WARM_UP, 0.5 * (1 + np.cos(np.pi * min(1.0, step / args.steps)))) if step else 1e-3,
    )
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    mean.module.states = model.states
    best, log = -1.0, []
    last = min(args.steps, args.until or args.steps)
    for step in range(1, last + 1):
        model.train()
        places = rng.sample(range(len(files)), args.pairs)
        sentences = [rng.choice(photos.captions[files[place]]) for place in places]
        sentences = [shortened(text, rng) if rng.random() < 0.2 else text for text in sentences]
        sentences = [f"{rng.choice(OPENINGS)} {text.lower()}" if rng.random() < 0.125 else text for text in sentences]
        chosen = rng.choices(range(len(known)), weights, k=args.pairs // 4)
        others = rng.sample(range(len(known), len(known) + len(words)), args.pairs // 8)
        with torch.autocast("cpu", torch.bfloat16):
            short = model([known[place] for place in chosen] + [words[place - len(known)] for place in others])
            long = model(sentences)
        loss = contrast(long, model.images(images[places]), scale.exp())
        unique = list({place: row for row, place in enumerate(chosen)}.items())
        rows, targets = [row for _, row in unique], model.images(centres[[place for place, _ in unique]])
        loss = loss + args.phrase_weight * contrast(short[rows], targets, scale.exp())
        lost = neighbours_lost(short, reference[chosen + others], slice(len(chosen), None))
        loss = loss + args.neighbour_weight * lost
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        scale.data.clamp_(max=float(np.log(60)))
        mean.update_parameters(model)
        if step % 50 == 0 or step == last:
            tower: Texts = mean.module
            with torch.no_grad():
                projected = tower.images(val_images).numpy()
                found = {name: found_of(tower, captions, tower.images(rows).numpy())
                         for name, (captions, rows) in val.items()}  # fmt: skip
            result = found["val-whole"] | {f"flickr {key}": value for name, part in found.items()
                                           for key, value in part.items() if name != "val-whole"}  # fmt: skip
            row = {"step": step, "loss": round(loss.item(), 3), "lost": round(lost.item(), 3), **result,
                   "unseen": unseen_precision(tower, projected, val_captions), "scale": round(scale.exp().item(), 1),
                   "cpu_s": round(time.process_time())}  # fmt: skip
            print(json.dumps(row), flush=True)
            log.append(row)
            (out / "log.json").write_text(json.dumps(log))
            score = sum(part["R1"] + part["R5"] for part in found.values())
            if score > best:
                best = score
                torch.save({"model": tower.state_dict(), "scale": scale.item(), "step": step}, out / "best.partial")
                (out / "best.partial").rename(out / "best.pt")


if __name__ == "__main__":
    main()
