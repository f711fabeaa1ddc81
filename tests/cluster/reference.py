"""Slow, obvious forms of the algorithms, in plain loops over one video. Nothing here is shared with the library."""

import math

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
