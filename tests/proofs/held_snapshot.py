"""held-snapshot: a transaction that somebody keeps open for a minute, so that nothing dead can be
removed, leaves dispatch as it was: CPU per run at most 20 % more, no run lost, early or failed."""

from __future__ import annotations

from typing import Any

from tests.bench.held import BAR, held

MINUTES = 1.0


def main(minutes: float = MINUTES) -> dict[str, Any]:
    found = held(minutes, window=20.0)
    return {
        "holds": found["cost_ratio"] <= BAR
        and found["pace_ratio"] <= BAR
        and found["held_early"] == 0
        and found["held_not_succeeded"] == 0
        and found["dead_rows"] > 0,
        **{name: round(value, 2) for name, value in found.items()},
    }
