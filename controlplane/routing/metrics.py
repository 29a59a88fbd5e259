"""What the router tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The router's figures, in a registry of their own. No tenant ever is a label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "router_requests",
            "Answers by plane and status class",
            ["plane", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "router_request_duration_seconds",
            "From the request's head to the answer's end",
            registry=self.registry,
            buckets=_BOUNDS,
        )
        self.replays = Counter(
            "router_replays", "Requests sent again after a 421 or a lost connection", registry=self.registry
        )
        self.in_flight = Gauge("router_requests_in_flight", "Requests under way", registry=self.registry)
        self.feed_age = Gauge(
            "router_feed_age_seconds", "Since the table was last known to be current", registry=self.registry
        )
        self.limit_fallbacks = Gauge(
            "router_limit_fallbacks", "Requests counted without Valkey since start", registry=self.registry
        )
        self.unshipped = Gauge(
            "router_meter_records_unshipped",
            "Meter records Django has not acknowledged",
            registry=self.registry,
        )
        self._by_label: dict[tuple[str, int], Counter] = {}

    def answered(self, plane: str, status: int, seconds: float) -> None:
        """One answer went out."""
        key = (plane, status // 100)
        counter = self._by_label.get(key)
        if counter is None:
            counter = self._by_label[key] = self.requests.labels(plane, f"{status // 100}xx")
        counter.inc()
        self.seconds.observe(seconds)

    def page(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
