from __future__ import annotations

import pytest

from cells.observability.metrics import Metrics


def test_a_metric_is_made_once() -> None:
    metrics = Metrics()
    metrics.counter("claims_total", "Claims", ["result"]).labels("won").inc()
    metrics.counter("claims_total", "Claims", ["result"]).labels("won").inc()
    assert metrics.registry.get_sample_value("claims_total", {"result": "won"}) == 2
    assert 'claims_total{result="won"} 2.0' in metrics.render().decode()


def test_a_name_means_one_kind() -> None:
    metrics = Metrics()
    metrics.gauge("depth", "Depth")
    with pytest.raises(ValueError, match="depth is a Gauge"):
        metrics.counter("depth", "Depth")
