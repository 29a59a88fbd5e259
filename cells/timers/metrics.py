"""What timers count."""

from __future__ import annotations

from cells.observability.metrics import LATENESS_BUCKETS, Metrics

CLASSES = ("CRITICAL", "HIGH", "DEFAULT", "LOW")


class TimerMetrics:
    """The package's metrics on a process's registry."""

    def __init__(self, metrics: Metrics | None = None):
        metrics = metrics or Metrics()
        self.loaded = metrics.counter(
            "timers_loaded_total", "Members that loads from the store put into buckets"
        )
        self.loads = metrics.counter("timers_minute_loads_total", "Minutes loaded into buckets", ["by"])
        self.generations = metrics.counter(
            "timers_generations_total", "Times that buckets were found lost and loaded again"
        )
        self.released = metrics.counter("timers_released_total", "Members released into queues", ["priority"])
        self.held = metrics.counter("timers_held_total", "Members held back past their tenant's quota")
        self.wakes = metrics.counter("timers_wakes_total", "Times a dispatcher looked at its buckets")
        self.release_lag = metrics.histogram(
            "timers_release_lag_seconds",
            "How late the oldest member of a wake was (held members not counted)",
            buckets=LATENESS_BUCKETS,
        )
        self.shards = metrics.gauge("timers_shards_held", "Shards this dispatcher releases")
        self.depth = metrics.gauge("timers_queue_depth", "Released members not yet popped", ["priority"])
        self.tenants_held = metrics.gauge(
            "timers_tenants_over_quota", "Tenants and classes with members held back"
        )
        self.tenants_full = metrics.gauge(
            "timers_tenants_at_running_quota", "Tenants that have, or lately had, no room for a further run"
        )
        self.tenants_delayed = metrics.gauge(
            "timers_tenants_low_delayed", "Tenants whose LOW work waits for their budget"
        )
        self.stragglers = metrics.counter(
            "timers_stragglers_total", "Overdue members found in no bucket, held set or queue"
        )
        self.sweeps = metrics.counter("timers_sweeps_total", "Straggler sweeps", ["kind"])
        self.faults = metrics.counter(
            "timers_service_faults_total", "Engine troubles that a service waited out", ["service"]
        )
