"""What became of every job that a load made: the books of target and database, compared."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import psycopg

from cells.domain.ids import RunKey, run_id
from tests.fleet import Fleet, Load
from tests.recorder import Recorder
from tests.waiting import eventually_sync

#: Ends of a run in the journal, told apart from ends of an attempt.
_ENDS = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN", "SUCCEEDED_AFTER_CANCEL"})


def settle(cell: Fleet, load: Load, *, timeout: float) -> None:
    """Wait until every job that was made has ended, however."""

    def all_ended() -> bool:
        try:
            ended = cell.query("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL")[0][0]
            waiting = cell.query("SELECT count(*) FROM jobs WHERE due_at IS NOT NULL")[0][0]
        except psycopg.OperationalError:
            return False
        return ended >= len(load.made) and waiting == 0

    eventually_sync(all_ended, timeout=timeout, interval=0.5)


def accounted(cell: Fleet, load: Load, target: Recorder) -> dict[str, Any]:
    """Nothing lost, nothing ended twice, nothing early by anybody's clock; and how late it got."""
    runs = {
        run_id(RunKey(parent_id=parent, scheduled_for=at.astimezone(UTC), ordinal=ordinal)): row
        for parent, at, ordinal, *row in cell.query(
            "SELECT parent_id, scheduled_for, ordinal, state, due_at, claimed_at FROM runs"
        )
    }
    first_calls: dict[str, float] = {}
    for call in list(target.calls):
        first_calls[call.key] = min(call.at, first_calls.get(call.key, call.at))
    succeeded = {key for key, (state, _, _) in runs.items() if state == "SUCCEEDED"}
    ends = _ends_in_journal(cell)
    lateness = {
        key: first_calls[key] - runs[key][1].timestamp()
        for key in load.made & runs.keys() & first_calls.keys()
    }
    found: dict[str, Any] = {
        "jobs": len(load.made),
        "never_run": len(load.made - runs.keys()),
        "not_succeeded": len(runs.keys() - succeeded),
        "never_called": len(load.made - first_calls.keys()),
        "ended_twice": sum(1 for count in ends.values() if count > 1),
        "ends_not_journalled": len(succeeded - ends.keys()),
        "early_by_the_targets_clock": sum(1 for late in lateness.values() if late < 0),
        "early_by_the_databases_clock": sum(1 for _, due, claimed in runs.values() if claimed < due),
        "called_more_than_once": sum(1 for count in target.keys().values() if count > 1),
        "creations_unanswered": load.unanswered,
        "latest_seconds": round(max(lateness.values(), default=0.0), 2),
    }
    must_be_none = (
        "never_run",
        "not_succeeded",
        "never_called",
        "ended_twice",
        "ends_not_journalled",
        "early_by_the_targets_clock",
        "early_by_the_databases_clock",
    )
    return {"holds": len(load.made) > 0 and not any(found[name] for name in must_be_none), **found}


def _ends_in_journal(cell: Fleet) -> Counter[str]:
    """How often the journal says that a run ended."""
    ends: Counter[str] = Counter()
    rows = cell.query(
        "SELECT e->>1, (e->>2)::bigint, (e->>3)::int, e->>5 FROM journal,"
        " jsonb_array_elements(convert_from(body, 'UTF8')::jsonb->'finished') AS e"
    )
    for parent, at, ordinal, state in rows:
        if state in _ENDS:
            ends[_key(parent, at, ordinal)] += 1
    return ends


def _key(parent: str, seconds: int, ordinal: int) -> str:
    scheduled = datetime.fromtimestamp(seconds, UTC)
    return run_id(RunKey(parent_id=uuid.UUID(hex=parent), scheduled_for=scheduled, ordinal=ordinal))
