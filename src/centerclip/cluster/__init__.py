"""Tokens in, centre tokens out: pure functions that know nothing of models or files.

They take NumPy arrays or torch tensors and return the kind that they were given, with the same ids; torch is imported
by nobody here.

>>> ids, assignment = kmedoids(tokens, k=49)  # tokens [B, N, D] -> ids [B, K] ascending, assignment [B, N]
"""

from ..errors import ClusterError, SettingError
from .baselines import class_attention, highest, pooling, random_tokens, sparse_sampling, temporal_shift, token_shift
from .kmedoids import Clusters, kkz, kmedoids
from .merging import cluster_means, density_peaks, size_bias, soft_matching, temporal_matching
from .segments import Centers, centers
from .setting import Setting, Stage
from .spectral import SigmaWarning, sign_flip, similarity_graph, spectral, spectral_embedding
from .temporal import allot, pack, patch_changes, run_lengths, segment_changes

__all__ = [
    "Centers",
    "ClusterError",
    "Clusters",
    "Setting",
    "SettingError",
    "SigmaWarning",
    "Stage",
    "allot",
    "centers",
    "class_attention",
    "cluster_means",
    "density_peaks",
    "highest",
    "kkz",
    "kmedoids",
    "pack",
    "patch_changes",
    "pooling",
    "random_tokens",
    "run_lengths",
    "segment_changes",
    "sign_flip",
    "similarity_graph",
    "size_bias",
    "soft_matching",
    "sparse_sampling",
    "spectral",
    "spectral_embedding",
    "temporal_matching",
    "temporal_shift",
    "token_shift",
]
