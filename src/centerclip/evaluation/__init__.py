"""Vectors -> ranks -> metrics: retrieval in both directions, with intervals, labels and the rank of every query."""

from ..errors import EvaluationError
from .evaluate import EncodedBenchmark, encode_benchmark, evaluate, evaluate_vectors
from .metrics import Metrics, rank_matrix, retrieval_metrics, summaries
from .ranking import Ranks, rank_vectors
from .result import Evaluation, Gain, Seeds, compare, gains

__all__ = [
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
    "gains",
    "rank_matrix",
    "rank_vectors",
    "retrieval_metrics",
    "summaries",
]
