"""Slow, obvious forms of the algorithms, in plain loops over one video. Nothing here is shared with the library."""

import math
from itertools import pairwise

import numpy as np


def distance(a, b, metric="euclidean"):
    if metric == "cosine":
        # 1 - cos, written so that a token is at exactly 0 from itself
        return distance(a / np.linalg.norm(a), b / np.linalg.norm(b)) ** 2 / 2
    return math.sqrt(float(((a - b) ** 2).sum()))


def kkz(x, k, metric="euclidean", first=None):
    """x [N, D] -> the chosen ids in order."""
    chosen = [int(np.argmax([np.linalg.norm(v) for v in x])) if first is None else first]
    while len(chosen) < k:
        best, best_distance = None, -1.0
        for i in range(len(x)):
            if i in chosen:
                continue
            nearest = min(distance(x[i], x[j], metric) for j in chosen)
            if nearest > best_distance:
                best, best_distance = i, nearest
        chosen.append(best)
    return chosen


def assign(x, ids, metric="euclidean"):
    out = []
    for i in range(len(x)):
        if i in ids:
            out.append(ids.index(i))
        else:
            out.append(int(np.argmin([distance(x[i], x[j], metric) for j in ids])))
    return out


def kmedoids(x, k, metric="euclidean", normalise=False, centre="medoid", iterations=100, first=None):
    """x [N, D] -> (ids ascending, assignment)."""
    x = np.asarray(x, dtype=np.float64)
    if first is None:
        first = int(np.argmax([np.linalg.norm(v) for v in x]))
    if normalise:
        x = np.stack([v / np.linalg.norm(v) for v in x])
    ids = kkz(x, k, metric, first)
    for _ in range(iterations):
        labels = assign(x, ids, metric)
        new = []
        for cluster in range(k):
            members = [i for i in range(len(x)) if labels[i] == cluster]
            if centre == "medoid":
                costs = [math.fsum(distance(x[i], x[j], metric) for j in members) for i in members]
            else:
                mean = x[members].mean(axis=0)
                costs = [distance(x[i], mean) for i in members]
            new.append(members[int(np.argmin(costs))])
        if new == ids:
            break
        ids = new
    ids = sorted(ids)
    return ids, assign(x, ids, metric)


def spectral(x, k, neighbours, sigma=2.0, graph="knn"):
    """x [N, D] -> (ids ascending, assignment, rows [N, K])."""
    x = np.asarray(x, dtype=np.float64)
    n = len(x)
    d = np.array([[distance(a, b) for b in x] for a in x])
    w = np.exp(-(d**2) / (2 * sigma**2))
    if graph == "knn":
        keep = np.zeros((n, n), dtype=bool)
        for i in range(n):
            keep[i, np.argsort(d[i], kind="stable")[:neighbours]] = True
        w = w * (keep | keep.T)
    degree = w.sum(axis=1)
    laplacian = np.diag(degree**-0.5) @ (np.diag(degree) - w) @ np.diag(degree**-0.5)
    _, vectors = np.linalg.eigh((laplacian + laplacian.T) / 2)
    vectors = vectors[:, :k]
    strength = np.linalg.norm(vectors, axis=1)
    rows = vectors / strength[:, None]
    ids, labels = kmedoids(rows, k, first=int(np.argmax(strength)))
    return ids, labels, rows


def cost(x, ids, metric="euclidean"):
    """Summed distance of every token to its nearest centre."""
    x = np.asarray(x, dtype=np.float64)
    return math.fsum(min(distance(v, x[j], metric) for j in ids) for v in x)


def segment_step(hidden, frames, segments, k, choose):
    """hidden [V*T, 1+L, D] -> [V*S, 1+K, D]; choose(tokens [N, D], k) -> ids."""
    per = frames // segments
    out = []
    for start in range(0, len(hidden), per):
        part = hidden[start : start + per]
        patches = np.concatenate([frame[1:] for frame in part])
        out.append(np.concatenate([part[:, :1].mean(axis=0), patches[sorted(choose(patches, k))]]))
    return np.stack(out)


def patch_changes(pixels, patch):
    """pixels [N, C, H, W] -> how much each patch differs from the frame before, in steps of 1/1024: [N][L]."""
    out = [[math.inf] * ((pixels.shape[2] // patch) * (pixels.shape[3] // patch))]
    for before, now in pairwise(pixels):
        out.append([])
        for top in range(0, pixels.shape[2] - patch + 1, patch):
            for left in range(0, pixels.shape[3] - patch + 1, patch):
                window = (slice(None), slice(top, top + patch), slice(left, left + patch))
                out[-1].append(float(np.abs(np.round(now[window] * 1024) - np.round(before[window] * 1024)).sum()))
    return out


def run_lengths(changes, k, frame):
    """changes [N] of whole frames -> (ids ascending, assignment)."""
    wanted = sorted(range(len(changes)), key=lambda i: (i >= frame, -changes[i] if i >= frame else 0, i))
    ids = sorted(wanted[:k])
    assignment = []
    for i in range(len(changes)):
        while i not in ids:
            i -= frame  # the same place, one frame earlier
        assignment.append(ids.index(i))
    return ids, assignment


def temporal_matching(x, k, frame, across=0.7):
    """Lists of members: every second frame joins the others first, then every second group the others."""
    x = np.asarray(x, dtype=np.float64)
    members = [[i] for i in range(len(x))]

    def merge(sources, targets, count):
        nonlocal members
        means = np.array([x[each].mean(axis=0) for each in members])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        pairs = [
            (means[i] @ means[j], i, j) for i in sources for j in [max(targets, key=lambda j: means[i] @ means[j])]
        ]
        pairs = sorted(pairs, reverse=True)[:count]
        for _, i, j in pairs:
            members[j] = members[j] + members[i]
        gone = {i for _, i, _ in pairs}
        members = [each for i, each in enumerate(members) if i not in gone]

    if len(x) > frame:
        sources = [i for i in range(len(x)) if i // frame % 2 == 0]
        targets = [i for i in range(len(x)) if i // frame % 2 == 1]
        merge(sources, targets, len(x) - max(k, round(across * len(x)), len(targets)))
    while (left := len(members)) > k:
        merge(range(0, left, 2), range(1, left, 2), min(left - k, left // 2))
    return members


def allot(changes, k, most, least=1):
    """changes [S] -> tokens of each segment: half of K each, the others one by one to the largest change a token."""
    given = [max(least, k // 2)] * len(changes)
    least = given[0]
    for _ in range(len(changes) * k - sum(given)):
        open_places = [s for s in range(len(changes)) if given[s] < most]
        best = max(open_places, key=lambda s: (changes[s] / (given[s] - least + 1), -given[s], -s))
        given[best] += 1
    return given
