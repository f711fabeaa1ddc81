"""The paper's first figure: the tokens of one segment as a map, with the image patches of the centres beside them."""

import io

import numpy as np
from PIL import Image

from ..errors import CenterClipError
from .centre_sheet import PALETTE
from .seen import Seen

MARKERS = "os^Dv<>pPX"  # colours come again after eight clusters, and then with another marker
PATCH_PIXELS = 26
CROWDED = 24  # more centres than this get smaller patches


def token_map(seen: Seen, segment: int) -> Image.Image:
    """The tokens of one segment of the first stage by t-SNE, coloured by cluster, its centres with their patches."""
    try:
        import matplotlib
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise CenterClipError("--tsne needs matplotlib and scikit-learn: pip install 'centerclip[research]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    stage, ids = seen.first.stage, seen.first.ids[segment].tolist()
    merged, patches = len(seen.tokens) // stage.segments, seen.tokens.shape[1]
    tokens = seen.tokens[segment * merged : (segment + 1) * merged].reshape(merged * patches, -1).numpy()
    if len(tokens) < 4:
        raise CenterClipError(f"a map needs at least 4 tokens, and a segment has {len(tokens)}; take more frames.")
    spread = TSNE(perplexity=min(30.0, (len(tokens) - 1) / 3), init="pca", random_state=0).fit_transform(tokens)
    assignment = seen.first.assignment
    clusters = assignment[segment].cpu().numpy() if assignment is not None else np.full(len(tokens), len(PALETTE) - 1)
    figure, axes = pyplot.subplots(figsize=(9, 9), dpi=120)
    axes.set_facecolor((0.25, 0.25, 0.25))
    for cluster in np.unique(clusters):
        members = spread[clusters == cluster]
        colour = np.array(PALETTE[cluster % len(PALETTE)]) / 255
        marker = MARKERS[cluster // len(PALETTE) % len(MARKERS)]
        axes.scatter(members[:, 0], members[:, 1], s=26, color=[colour], marker=marker, linewidths=0)
    axes.scatter(spread[ids, 0], spread[ids, 1], s=110, facecolors="none", edgecolors="white", linewidths=1.6)
    middle = spread.mean(axis=0)
    for token in ids:
        picture = OffsetImage(
            _patch(seen, segment * merged + token // patches, token % patches), zoom=0.6 if len(ids) > CROWDED else 1.0
        )
        away = np.where(spread[token] >= middle, 24, -24)
        axes.add_artist(
            AnnotationBbox(
                picture,
                tuple(spread[token]),
                xybox=tuple(away),
                boxcoords="offset points",
                pad=0.1,
                arrowprops={"arrowstyle": "-", "color": "white", "linewidth": 0.6},
            )
        )
    axes.margins(0.12)
    axes.set_xticks([])
    axes.set_yticks([])
    start, end = seen.times[segment * merged], seen.times[(segment + 1) * merged - 1]
    axes.set_title(
        f"{len(tokens)} tokens after block {stage.block}, frames from {start:.1f} to {end:.1f} s: "
        f"{len(ids)} centres (circles) and their patches"
    )
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    pyplot.close(figure)
    return Image.open(file).convert("RGB")


def _patch(seen: Seen, frame: int, patch: int) -> np.ndarray:
    """The picture of one patch, ``[PATCH_PIXELS, PATCH_PIXELS, 3]``."""
    side = round(seen.tokens.shape[1] ** 0.5)
    size = seen.squares.shape[1] // side
    row, column = divmod(patch, side)
    part = seen.squares[frame, row * size : (row + 1) * size, column * size : (column + 1) * size].numpy()
    return np.asarray(Image.fromarray(part).resize((PATCH_PIXELS, PATCH_PIXELS), Image.Resampling.BICUBIC))
