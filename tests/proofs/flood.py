"""flood: one tenant with 500,000 jobs due at one instant delays none of 50 quiet tenants of its class.

Their p99 lag stays within twice what it is without the flood, or 100 ms; the flood makes progress, and
nothing starts early.
"""

from __future__ import annotations

from typing import Any

from tests.bench.neighbours import FLOOD, QUIET, beside_a_flood


def main(flood: int = FLOOD, quiet: int = QUIET) -> dict[str, Any]:
    found = beside_a_flood(flood, quiet=quiet)
    return {
        "holds": found["beside_lag_p99_ms"] <= found["may_be_ms"]
        and found["alone_not_succeeded"] == found["beside_not_succeeded"] == 0
        and found["early"] == 0
        and found["flood_ended_meanwhile"] > 0
        # Else it would have measured the start of a cell.
        and found["ready_after_begin_seconds"] == 0,
        "flood": flood,
        "quiet": quiet,
        **{name: round(value, 1) for name, value in found.items()},
    }
