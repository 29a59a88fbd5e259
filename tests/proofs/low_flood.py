"""low-flood: 200,000 LOW jobs due at one instant leave the p99 lag of CRITICAL jobs, which go on
becoming due beside them, under 250 ms; the flood makes progress and nothing starts early."""

from __future__ import annotations

from typing import Any

from tests.bench.flood import CRITICAL_BAR_MS, LOW, flooded


def main(low: int = LOW) -> dict[str, Any]:
    found = flooded(low)
    return {
        "holds": found["critical_beside_flood_p99_ms"] < CRITICAL_BAR_MS
        and found["critical_not_succeeded"] == 0
        and found["early"] == 0
        and found["low_ended_meanwhile"] > 0
        # Else it would have measured the start of a cell.
        and found["ready_after_begin_seconds"] == 0,
        "low": low,
        **{name: round(value, 1) for name, value in found.items()},
    }
