"""Tokens in, centre tokens out: pure tensor functions that know nothing of models or files.

>>> ids, assignment = kmedoids(tokens, k=49)  # tokens [B, N, D] -> ids [B, K] ascending, assignment [B, N]
"""

from .centers import Centers, centers
from .errors import ClusterError, SettingError
from .kmedoids import Clusters, kkz, kmedoids
from .pooling import pooling
from .sampling import sparse_sampling
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
    "kkz",
    "kmedoids",
    "pooling",
    "sign_flip",
    "similarity_graph",
    "sparse_sampling",
    "spectral",
    "spectral_embedding",
    "temporal_shift",
    "token_shift",
]
