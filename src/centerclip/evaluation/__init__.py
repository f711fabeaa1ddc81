"""Vectors -> ranks -> figures: retrieval in both directions, with intervals, labels and every query on record."""

from .compare import Comparison, compare
from .encode import EncodedBenchmark, encode_benchmark
from .errors import EvaluationError
from .evaluate import evaluate, evaluate_vectors
from .metrics import Metrics, rank_matrix, retrieval_metrics, summaries
from .ranking import Ranks
from .result import Evaluation
from .seeds import Gain, Seeds, gain
from .vectors import rank_vectors

__all__ = [
    "Comparison",
    "EncodedBenchmark",
    "Evaluation",
    "EvaluationError",
    "Gain",
    "Metrics",
    "Ranks",
    "Seeds",
    "compare",
    "encode_benchmark",
    "evaluate",
    "evaluate_vectors",
    "gain",
    "rank_matrix",
    "rank_vectors",
    "retrieval_metrics",
    "summaries",
]
