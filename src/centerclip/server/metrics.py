"""Counters in the text format of Prometheus."""

import threading
import time
from collections import Counter
from collections.abc import Iterable

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What the server has done since it started."""

    def __init__(self) -> None:
        self.started = time.time()
        self.in_flight = 0
        self.sentences = self.batches = 0
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. ``route`` is the name of what was asked for, not the path: no series for every video."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]
            counts = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
            place = next((n for n, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
            counts[place] += 1

    def batch(self, size: int) -> None:
        """Count sentences that were encoded together."""
        with self._lock:
            self.batches += 1
            self.sentences += size

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """Everything in Prometheus' format.

        Args:
            gauges: name -> (what it is, value) of what is measured at this moment.
        """
        with self._lock:
            lines = [
                "# HELP centerclip_requests_total Requests answered.",
                "# TYPE centerclip_requests_total counter",
                *(
                    f'centerclip_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
                    for (method, route, status), count in sorted(self._requests.items())
                ),
                "# HELP centerclip_request_seconds Time until the last byte of the answer.",
                "# TYPE centerclip_request_seconds histogram",
                *self._histogram(),
            ]
            counters = {
                "centerclip_sentences_total": ("Sentences encoded.", self.sentences),
                "centerclip_sentence_batches_total": ("Batches that they were encoded in.", self.batches),
            }
        lines += _plain(counters.items(), "counter")
        own = {
            "centerclip_requests_in_flight": ("Requests under way.", self.in_flight),
            "centerclip_uptime_seconds": ("Seconds since the start.", round(time.time() - self.started, 1)),
        }
        lines += _plain([*own.items(), *gauges.items()], "gauge")
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterable[str]:
        for route, counts in sorted(self._buckets.items()):
            so_far = 0
            for bound, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
                so_far += count
                yield f'centerclip_request_seconds_bucket{{route="{route}",le="{bound}"}} {so_far}'
            yield f'centerclip_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'centerclip_request_seconds_count{{route="{route}"}} {so_far}'


def _plain(series: Iterable[tuple[str, tuple[str, float]]], kind: str) -> list[str]:
    return [
        line
        for name, (what, value) in series
        for line in (f"# HELP {name} {what}", f"# TYPE {name} {kind}", f"{name} {value}")
    ]
