"""What a rehearsal proved, out of what was seen and what the cells' ledgers say. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

#: In the order of the columns of the CSV file.
COLUMNS = (
    *(
        "cell",
        "cut_region",
        "owner_after",
        "due",
        "began",
        "run_once",
        "late_p50_ms",
        "late_p99_ms",
        "late_max_ms",
    ),
    *(
        "repeated",
        "refused_by_epoch",
        "rpo_seconds",
        "rpo_bytes",
        "rto_owner_seconds",
        "rto_first_run_seconds",
    ),
    *("let_go_seconds", "returned_as"),
)


def report_of(
    *, cell: str, region: str, cut_at: float, facts: Mapping[str, Any], counted: Mapping[str, Any]
) -> dict[str, Any]:
    """One cell's line. Times are seconds from the cut on; None: it was not seen.

    RPO: how much older the newest commit of the new owner is than the newest that the one that was cut off
    made. RTO: when the new owner held its first lease, and when the first run began under it."""
    committed, replayed = facts.get("committed_at"), facts.get("replayed_at")
    position, fork = facts.get("position"), facts.get("fork")
    first = counted.get("first_began_at")
    taken = facts.get("owner_after") not in (None, region)
    return {
        "cell": cell,
        "cut_region": region,
        "owner_after": facts.get("owner_after"),
        "due": counted.get("due"),
        "began": counted.get("began"),
        "run_once": counted.get("once"),
        **{name: _rounded(counted.get(name)) for name in ("late_p50_ms", "late_p99_ms", "late_max_ms")},
        "repeated": counted.get("repeated"),
        "refused_by_epoch": counted.get("refused"),
        "rpo_seconds": _since(replayed, committed) if taken else None,
        "rpo_bytes": max(0, position - fork) if taken and position and fork else None,
        "rto_owner_seconds": _since(cut_at, facts.get("owned_at")),
        "rto_first_run_seconds": (
            _since(cut_at, datetime.fromisoformat(first).timestamp()) if taken and first else None
        ),
        "let_go_seconds": _since(cut_at, facts.get("let_go_at")),
        "returned_as": facts.get("returned_as"),
        "repeats": list(counted.get("repeats", ())),
    }


def _since(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(max(0.0, end - begin), 3)


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def sums_of(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All cells together: sums of what is counted, the worst of what is timed."""
    added = ("due", "began", "run_once", "repeated", "refused_by_epoch")
    worst = (
        "late_max_ms",
        "late_p99_ms",
        "rpo_seconds",
        "rpo_bytes",
        "rto_owner_seconds",
        "rto_first_run_seconds",
    )
    told = {name: [r[name] for r in reports if r[name] is not None] for name in (*added, *worst)}
    return {
        "cells": len(reports),
        **{name: sum(told[name]) for name in added},
        **{name: max(told[name], default=None) for name in worst},
    }


def as_csv(reports: Sequence[Mapping[str, Any]]) -> str:
    """A line for each cell, then one for each repeated run: its cell, its tenant, its key."""
    made = io.StringIO()
    lines = csv.writer(made, lineterminator="\r\n")
    lines.writerow(COLUMNS)
    for report in reports:
        lines.writerow(["" if report[name] is None else report[name] for name in COLUMNS])
    lines.writerow([])
    lines.writerow(["repeated_in_cell", "tenant_id", "key", "state", "lost"])
    for report in reports:
        for one in report["repeats"]:
            lines.writerow([report["cell"], one["tenant_id"], one["run_id"], one["state"], one["lost"]])
    return made.getvalue()
