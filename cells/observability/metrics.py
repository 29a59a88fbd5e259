"""Prometheus metrics of one process.

`Metrics` is a registry with get-or-create factories, so that each package declares its own
metrics beside the code they measure, and may be built twice in one process. Names have base units and
`_total`; a tenant is never a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Seconds from milliseconds of a quiet cell to minutes of a backlog.
LATENESS_BUCKETS = (
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

_M = TypeVar("_M", Counter, Gauge, Histogram)


class Metrics:
    """Where a process's parts count."""

    def __init__(self, registry: CollectorRegistry | None = None):
        self.registry = registry or CollectorRegistry()
        self._known: dict[str, Counter | Gauge | Histogram] = {}
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
        """The counter of that name, made at the first call."""
        return self._get(name, Counter, lambda: Counter(name, doc, labels, registry=self.registry))

    def gauge(self, name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
        """The gauge of that name, made at the first call."""
        return self._get(name, Gauge, lambda: Gauge(name, doc, labels, registry=self.registry))

    def histogram(
        self, name: str, doc: str, labels: Sequence[str] = (), buckets: Sequence[float] = DURATION_BUCKETS
    ) -> Histogram:
        """The histogram of that name, made at the first call."""
        return self._get(
            name, Histogram, lambda: Histogram(name, doc, labels, buckets=buckets, registry=self.registry)
        )

    def render(self) -> bytes:
        """The text that `/metrics` answers."""
        return generate_latest(self.registry)

    def _get(self, name: str, kind: type[_M], make: Callable[[], _M]) -> _M:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = make()
        if not isinstance(found, kind):
            raise ValueError(f"{name} is a {type(found).__name__}")
        return found
