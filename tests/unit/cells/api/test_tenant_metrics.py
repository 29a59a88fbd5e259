"""The text that a tenant's Prometheus reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from cells.api.tenant_metrics import Family, exposition


def test_what_is_written_is_what_prometheus_reads() -> None:
    odd = 'back\\slash "quoted"\nline'
    text = exposition(
        [
            Family(name="clockhouse_a", help="First.", samples=[({}, 12345678901)]),
            Family(
                name="clockhouse_b", help="Second.", samples=[({"task_queue": odd}, 0.004), ({"x": "y"}, 1)]
            ),
            Family(name="clockhouse_none", help="Nothing.", samples=[]),
        ]
    )
    read = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read == {
        ("clockhouse_a", ()): 12345678901,
        ("clockhouse_b", (("task_queue", odd),)): 0.004,
        ("clockhouse_b", (("x", "y"),)): 1,
    }
