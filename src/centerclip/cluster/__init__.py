"""Tokens in, centre tokens out: pure tensor functions that know nothing of models or files.

>>> ids, assignment = kmedoids(tokens, k=49)  # tokens [B, N, D] -> ids [B, K] ascending, assignment [B, N]
"""

from .centers import Centers, centers
from .chance import random_tokens
from .density import density_peaks
from .errors import ClusterError, SettingError
from .kmedoids import Clusters, kkz, kmedoids
from .matching import soft_matching
from .means import cluster_means, size_bias
from .pooling import pooling
from .sampling import sparse_sampling
from .scores import class_attention, highest
from .setting import Setting, Stage
from .shift import temporal_shift, token_shift
from .spectral import SigmaWarning, sign_flip, similarity_graph, spectral, spectral_embedding

__all__ = [
    "Centers",
    "ClusterError",
    "Clusters",
    "Setting",
    "SettingError",
    "SigmaWarning",
    "Stage",
    "centers",
    "class_attention",
    "cluster_means",
    "density_peaks",
    "highest",
    "kkz",
    "kmedoids",
    "pooling",
    "random_tokens",
    "sign_flip",
    "similarity_graph",
    "size_bias",
    "soft_matching",
    "sparse_sampling",
    "spectral",
    "spectral_embedding",
    "temporal_shift",
    "token_shift",
]
