"""The segment step: from the tokens of a video's frames to one short sequence per segment."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..errors import ClusterError
from ..extend import methods as extensions
from .arrays import Array, arange, cast, full, gather_rows, is_synchronous, namespace, no_gradients, sums_by_label
from .baselines import check_frames, highest, pooling, random_tokens, sparse_sampling
from .distances import channel_limits, exact_distances
from .kmedoids import Clusters, groups, kmedoids, nearest_centres
from .merging import cluster_means, cluster_sizes, density_peaks, size_bias, soft_matching, temporal_matching
from .setting import MERGING, STAGE_OPTIONS, STAGED, Setting, name_of
from .spectral import spectral
from .temporal import allot, pack, run_lengths, segment_changes

Chooser = Callable[[Array, int], Array | Clusters]  # tokens [B, N, D], k -> ids [B, K], with or without assignment
METHODS = tuple(name for name in STAGED if name != "pooling")  # those that choose tokens
MANY_PATCHES = 100  # the paper gives ViT-B/16 (196 patches) five more neighbours than ViT-B/32 (49)


class Centers(NamedTuple):
    """What is left of a video after the segment step, and where it came from."""

    tokens: Array  # [V*S, prefix + K, D]: the averaged prefix tokens, then the centres in their order
    ids: Array  # [V*S, K] into the segment's patch tokens, frame by frame, ascending
    places: Array | None  # [V*S, K, 3]: frame in the video, row, column of every kept token; None unless asked for
    assignment: Array | None  # [V*S, N]: the centre each token belongs to; None if the method has none
    sizes: Array | None = None  # [V*S, K]: how many tokens each stands for; None if the method has no clusters
    bias: Array | None = None  # [V*S, prefix + K]: what a proportional setting adds to the keys of later blocks
    packed: int = 0  # segments in each sequence, whose ``bias`` is ``[V, N, N]``; 0 where a sequence is a segment


def centers(
    hidden: Array,
    *,
    frames: int,
    segments: int,
    k: int,
    method: str | Chooser = "kmedoids",
    options: Mapping[str, Any] | None = None,
    prefix: int = 1,
    grid: tuple[int, int] | None = None,
    places: Array | None = None,
    scores: Array | None = None,
    sizes: Array | None = None,
    training: bool = False,
    generator: Any = None,
    merge: bool | None = None,
    locate: bool = True,
) -> Centers:
    """Cut videos into segments and keep the ``k`` centre tokens of each; average the [CLASS] tokens.

    Kept tokens are gathered as they are, or with a merging method are the means of their clusters (gradients flow
    through), in (frame, row, column) order of the centres; the choice itself has no gradient.

    Args:
        hidden: ``[videos * frames, prefix + L, D]``.
        frames: sequences of a video: its frames, or the segments that an earlier step left.
        segments: how many segments to cut a video into; divides ``frames``.
        k: tokens to keep of a segment, at most ``L * frames / segments``.
        method: ``"kmedoids"``, ``"spectral"``, ``"sampling"``, ``"means"``, ``"tome"``, ``"tempme"``, ``"rlt"``,
            ``"dpcknn"``, ``"kkz"``, ``"attention"``, ``"random"``, or a function ``(tokens [B, N, D], k)`` that returns
            ids ``[B, K]`` or :class:`~centerclip.cluster.Clusters`.
        options: of the method, as :class:`~centerclip.cluster.Setting` reads them.
        prefix: how many tokens in front are not patches: 1 for [CLASS], 0 for SigLIP, 5 with four registers.
        grid: rows and columns of the patches; a square by default.
        places: ``[videos * frames, L, 3]`` from an earlier step, so that places still name original patches.
        scores: ``[videos * frames, L]``, how much each patch matters, for ``"attention"``, or has changed, for
            ``"rlt"``.
        sizes: ``[videos * frames, L]``, how many tokens each patch stands for after an earlier step.
        training: sampling and random draw anew, from ``generator``.
        merge: whether a token that is kept is the mean of its cluster; by default the method says so.
        locate: also say where they came from, in ``places``.
    """
    check_frames(hidden, frames, segments)
    length = hidden.shape[1] - prefix
    merged = frames // segments
    if length < 1:
        raise ClusterError(f"sequences of {hidden.shape[1]} tokens have no patches after {prefix} prefix tokens")
    if not 1 <= k <= length * merged:
        raise ClusterError(
            f"K = {k} is not between 1 and the {length * merged} patch tokens of a segment "
            f"({merged} frames of {length})"
        )
    if places is not None and places.shape != (len(hidden), length, 3):
        raise ClusterError(f"places must be {[len(hidden), length, 3]}, got {list(places.shape)}")
    patches = hidden[:, prefix:].reshape(-1, merged * length, hidden.shape[2])  # [V*S, N, D]
    if scores is not None:
        scores = scores.reshape(-1, merged * length)
    options = dict(options or {})
    choose = chooser_for(method, options, merged, length, training, generator, scores)
    with no_gradients(hidden):
        chosen = choose(patches, k)
        ids, assignment = chosen if isinstance(chosen, tuple) else (chosen, None)
        if callable(method) or method not in METHODS:
            _check_chosen(method, ids, len(patches), k, patches.shape[1])
        if assignment is None and options.get("proportional"):  # every token belongs to the nearest that is kept
            assignment = _nearest(patches, ids)
    averaged = hidden[:, :prefix].reshape(len(patches), merged, prefix, hidden.shape[2])
    if options.get("class") == "kept":
        share = sums_by_label(full(ids.shape, 1 / k, "float32", hidden), ids // length, merged)  # [V*S, merged]
        averaged = (averaged * cast(share, averaged.dtype)[:, :, None, None]).sum(1)
    else:
        averaged = averaged.mean(1)
    before = None if sizes is None else sizes.reshape(-1, merged * length)
    after: Array | None
    if method in MERGING if merge is None else merge:
        if assignment is None:
            raise ClusterError("a function whose tokens are merged must return Clusters, not ids alone")
        kept, after = cluster_means(patches, assignment, k, before)
    else:
        kept = gather_rows(patches, ids)
        after = None if assignment is None else cluster_sizes(assignment, k, before)
    xp = namespace(hidden)
    if not is_synchronous(hidden):  # where nobody looks for NaN (see ``whole_numbers``), a segment with NaN stays NaN
        finite = xp.isfinite(channel_limits(patches.detach())).all(1)
        kept = xp.where(finite[:, None, None], kept, float("nan"))
    if places is None and locate:
        places = patch_places(len(hidden), frames, length, grid, hidden)
    found = follow_places(places, ids) if places is not None else None
    return Centers(xp.concatenate([averaged, kept], 1), ids, found, assignment, after)


def reduce_stage(
    hidden: Array,
    setting: Setting,
    number: int,
    *,
    frames: int,
    prefix: int,
    scores: Array | None = None,
    sizes: Array | None = None,
    training: bool = False,
) -> Centers:
    """Run stage ``number`` (from 0) of a setting, whatever its method; pooling gives tokens alone.

    Args:
        hidden: ``[V*sequences, prefix + L, D]``: of the frames, or of the segments that the stage before left.
        setting: with the stages.
        number: of the stage.
        frames: of a video.
        prefix: how many tokens in front are not patches.
        scores: ``[V*sequences, L]``, for ``"attention"``.
        sizes: what the stage before left.
        training: sampling and random draw anew.
    """
    stage, setting = setting.stages[number], setting.of_stage(number)
    sequences = setting.stages[number - 1].segments if number else frames
    if setting.method == "pooling":
        return Centers(pooling(hidden, frames=sequences, segments=stage.segments), None, None, None)
    options = setting.options
    if setting.chooser:  # the method's own are not for a function in its place
        options = {name: value for name, value in options.items() if name in STAGE_OPTIONS}
    reduce = partial(
        centers,
        method=setting.chooser or setting.method,
        options=options,
        merge=setting.merges,
        prefix=prefix,
        training=training,
        locate=False,
    )
    if setting.follows_content:
        return _reduce_by_change(hidden, setting, number, reduce, frames, sequences, prefix, scores, sizes)
    kept = reduce(hidden, frames=sequences, segments=stage.segments, k=stage.k, scores=scores, sizes=sizes)
    if not setting.proportional:
        return kept._replace(sizes=None)
    return kept._replace(bias=_bias_of(kept, setting, frames / stage.segments, prefix))


def _bias_of(kept: Centers, setting: Setting, merged: float, prefix: int) -> Array:
    """What the sizes of clusters add to attention scores, see :func:`size_bias`."""
    if kept.sizes is None:  # a function in place of a method that has clusters
        raise ClusterError(
            f'"{setting}" weighs tokens by the size of their clusters, but the method returns ids alone: return '
            "Clusters, or write [proportional=false]"
        )
    return size_bias(kept.sizes, merged, prefix)


def _reduce_by_change(
    hidden: Array,
    setting: Setting,
    number: int,
    reduce: Callable[..., Centers],
    frames: int,
    sequences: int,
    prefix: int,
    scores: Array | None,
    sizes: Array | None,
) -> Centers:
    """A stage whose segments keep more tokens the more they change, packed into one sequence a video."""
    stage = setting.stages[number]
    if prefix == 0:
        raise ClusterError(f'"{setting}": budget=change needs a tower with a [CLASS] token; this one pools all tokens')
    merged, length = sequences // stage.segments, hidden.shape[1] - prefix
    with no_gradients(hidden):
        patches = hidden[:, prefix:].reshape(-1, sequences, length, hidden.shape[2])
        least = length if setting.method == "rlt" else 1  # the first frame of a segment
        changes = segment_changes(patches, stage.segments)
        budgets = allot(changes, stage.k, merged * length, least).reshape(-1).tolist()
    rows: dict[int, Centers] = {}  # of each segment
    of_segment = {name: None if each is None else each.reshape(len(budgets), merged, -1)
                  for name, each in (("scores", scores), ("sizes", sizes))}  # fmt: skip
    whole = hidden.reshape(len(budgets), merged, prefix + length, hidden.shape[2])
    for k in sorted(set(budgets)):
        places = [place for place, budget in enumerate(budgets) if budget == k]
        given = {name: None if each is None else each[places].reshape(-1, length) for name, each in of_segment.items()}
        found = reduce(whole[places].reshape(-1, *hidden.shape[1:]), frames=merged, segments=1, k=k, **given)
        bias = full(found.tokens.shape[:2], 0, "float32", hidden)
        if setting.proportional:
            bias = _bias_of(found, setting, frames / stage.segments, prefix)
        rows |= {
            place: Centers(found.tokens[row], None, None, None, bias=bias[row]) for row, place in enumerate(places)
        }
    tokens, bias = pack([rows[place].tokens for place in range(len(budgets))],
                        [rows[place].bias for place in range(len(budgets))],
                        per_video=stage.segments, prefix=prefix)  # fmt: skip
    return Centers(tokens, None, None, None, bias=bias, packed=stage.segments)


def _nearest(patches: Array, ids: Array) -> Array:
    """The nearest kept token ``[B, N]`` of every token ``[B, N, D]``, as a place in ``ids [B, K]``."""
    parts, first = [], 0
    for group in groups(patches):
        parts.append(nearest_centres(exact_distances(group).matrix, ids[first : first + len(group)]))
        first += len(group)
    return namespace(patches).concatenate(parts)


def _check_chosen(method: str | Chooser, ids: Any, segments: int, k: int, tokens: int) -> None:
    """What a function of someone else returned: ``[segments, k]`` ids of tokens."""
    name, shape = method if isinstance(method, str) else name_of(method), list(getattr(ids, "shape", []))
    if shape != [segments, k]:
        raise ClusterError(
            f'method "{name}" must return ids [{segments}, {k}] of {tokens} tokens, got {shape or ids!r}'
        )
    if is_synchronous(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < tokens):
        raise ClusterError(f'method "{name}" returned ids outside 0 to {tokens - 1}')


def patch_places(sequences: int, frames: int, length: int, grid: tuple[int, int] | None, like: Array) -> Array:
    """``[sequences, length, 3]``: frame in the video, row and column of every patch, on the device of ``like``."""
    rows, columns = grid or (round(length**0.5), round(length**0.5))
    if rows * columns != length:
        raise ClusterError(f"{length} patches are not a {rows} x {columns} grid; pass grid=(rows, columns)")
    xp = namespace(like)
    frame, patch = arange(sequences, like) % frames, arange(length, like)
    parts = [frame[:, None], patch // columns, patch % columns]
    return xp.stack([xp.broadcast_to(part, (sequences, length)) for part in parts], 2)


def follow_places(places: Array, ids: Array) -> Array:
    """The places ``[V*S, K, 3]`` of the tokens kept by ``ids [V*S, K]``, from those before, ``[V*T, L, 3]``."""
    return gather_rows(places.reshape(len(ids), -1, 3), ids)


def chooser_for(
    method: str | Chooser,
    options: dict[str, Any],
    merged: int,
    length: int,
    training: bool,
    generator: Any,
    scores: Array | None = None,
) -> Chooser:
    """The function that chooses ids for a method, for segments of ``merged`` frames of ``length`` patches."""
    options = {name: value for name, value in options.items() if name not in STAGE_OPTIONS}
    if callable(method):
        return partial(method, **options)
    if method in ("attention", "rlt"):
        if scores is None:
            raise ClusterError(f'method "{method}" needs scores [videos * frames, patches], which attach() provides')
        if method == "rlt":
            return lambda tokens, k: run_lengths(scores, k, frame=length)
        return lambda tokens, k: highest(scores, k)
    drawn = {"training": training, "generator": generator}
    methods: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "kmedoids": (kmedoids, {}),
        "means": (kmedoids, {}),
        "kkz": (kmedoids, {"iterations": 0}),
        "spectral": (spectral, {"neighbours": 5 * merged + (5 if length > MANY_PATCHES else 0)}),
        "tome": (soft_matching, {"frame": length}),
        "tempme": (temporal_matching, {"frame": length}),
        "dpcknn": (density_peaks, {}),
        "sampling": (sparse_sampling, drawn),
        "random": (random_tokens, drawn),
    }
    extension = None if method in methods else extensions.get(method)
    if extension is not None:
        return partial(extension.target, **options)
    if method not in methods:
        known = ", ".join(f'"{name}"' for name in METHODS)
        raise ClusterError(f"method must be {known} or a function, got {method!r}")
    function, defaults = methods[method]
    return partial(function, **{**defaults, **options})
