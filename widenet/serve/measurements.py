"""What a service measures about itself, in Prometheus' format."""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Measurements:
    """Counters and histograms of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "widenet_requests", "Requests, by route and status.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "widenet_request_seconds",
            "Seconds from a request to its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue = Gauge("widenet_queue_rows", "Rows that wait for the model.", registry=registry)
        self.batches = Histogram(
            "widenet_batch_rows", "Rows computed together.", buckets=_ROWS, registry=registry
        )
        self.busy = Counter("widenet_model_seconds", "Seconds of computing batches.", registry=registry)
        self.errors = Counter("widenet_errors", "Batches that failed unexpectedly.", registry=registry)
        self.swaps = Counter("widenet_swaps", "Models that replaced another one.", registry=registry)
        self.failed_loads = Counter("widenet_failed_loads", "Models that were refused.", registry=registry)
        self.model = Gauge(
            "widenet_model", "1 for the model that answers.", ["fingerprint"], registry=registry
        )
        self._methods = cache(self._methods_of)  # finding them takes longer than calling them

    def note(self, route: str, status: int, seconds: float) -> None:
        """Note an answer."""
        count, observe = self._methods(route, status)
        count()
        observe(seconds)

    def _methods_of(self, route: str, status: int) -> tuple[Callable[[], None], Callable[[float], None]]:
        return self.requests.labels(route, str(status)).inc, self.seconds.labels(route).observe

    def answers_now(self, fingerprint: str) -> None:
        """Note which model answers."""
        self.model.clear()
        self.model.labels(fingerprint).set(1)

    def text(self) -> bytes:
        """Return all of them as Prometheus reads them."""
        return bytes(generate_latest(self.registry))
