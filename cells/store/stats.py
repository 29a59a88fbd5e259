"""Folding the journal into what the pages show: run_stats per tenant and minute.

Rows become readable in commit order only below `pg_snapshot_xmin`: everything there is final. The
cursor moves in the transaction that adds the counts, so each row is folded exactly once.
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cells.ports import LAG_BOUNDS_MS, JournalBody
from cells.rounds import Rounds
from cells.store.arrays import from_datetime, instants, int8s, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row, run

_READER = "stats"
#: Journal rows in memory at once: under load each tells of hundreds of runs.
_PAGE = 200
_decode = msgspec.json.Decoder(JournalBody).decode

#: Which column of run_stats an ended attempt counts in.
_COLUMN = {
    "SUCCEEDED": "succeeded",
    "SUCCEEDED_AFTER_CANCEL": "succeeded",
    "FAILED": "failed",
    "UNKNOWN": "failed",
    "RETRY_WAIT": "retried",
    "CANCELLED": "cancelled",
    "SKIPPED": "skipped",
}
_COUNTS = ("started", "succeeded", "failed", "retried", "cancelled", "skipped")


class _Minute:
    """One tenant's minute being added up."""

    __slots__ = ("counts", "lag_le", "lag_max", "lag_sum")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.lag_sum = 0
        self.lag_max = 0
        self.lag_le = [0] * (len(LAG_BOUNDS_MS) + 1)


Minutes = dict[tuple[str, datetime], _Minute]


def fold(minutes: Minutes, minute: datetime, body: JournalBody) -> None:
    """Add one journal row of a minute."""
    for tenant, _, _, ordinal, _ in body.claimed:
        if ordinal < 0:  # a callback
            continue
        minutes.setdefault((tenant, minute), _Minute()).counts["started"] += 1
    for tenant, _, _, ordinal, _, state, lag in body.finished:
        column = _COLUMN.get(state)
        if column is None or ordinal < 0:
            continue
        found = minutes.setdefault((tenant, minute), _Minute())
        found.counts[column] += 1
        if lag >= 0:
            found.lag_sum += lag
            found.lag_max = max(found.lag_max, lag)
            found.lag_le[bisect.bisect_left(LAG_BOUNDS_MS, lag)] += 1


#: Per tenant, target and minute: succeeded, failed, retried, ms in all, most ms; and the histogram.
Calls = dict[tuple[str, str, datetime], tuple[list[int], list[int]]]


def fold_calls(calls: Calls, minute: datetime, body: JournalBody) -> None:
    """Add the calls of one journal row of a minute."""
    for tenant, target, *counts, ms_sum, ms_max, ms_le in body.calls:
        sums, les = calls.setdefault((tenant, target, minute), ([0] * 5, [0] * len(ms_le)))
        for i, count in enumerate((*counts, ms_sum)):
            sums[i] += count
        sums[4] = max(sums[4], ms_max)
        for i, count in enumerate(ms_le):
            les[i] += count


class Stats(StoreBase):
    """Folding and reading."""

    async def fold_stats(self) -> int:
        """Fold one page of final journal rows; how many. 0 when there is nothing new or another
        process is at it."""
        async with self._database.transaction() as connection:
            if not (await fetch_row(connection, "fold_lock"))[0]:
                return 0
            known, final = await fetch_row(connection, "fold_cursor", {"name": _READER})
            cursor = known or 0
            if cursor >= final:
                return 0
            rows = await fetch_all(
                connection, "fold_rows", {"from_xid": cursor, "to_xid": final, "page": _PAGE}
            )
            minutes: Minutes = {}
            calls: Calls = {}
            rounds = Rounds()
            for _, minute, stored in rows:
                body = _decode(stored)
                fold(minutes, minute, body)
                fold_calls(calls, minute, body)
                await rounds.give_way()
            if minutes:
                await run(connection, "fold_stats", _columns(minutes))
            if calls:
                await run(connection, "fold_target_stats", _call_columns(calls))
            # A transaction appends one row, so a full page ends between two transactions.
            reached = rows[-1][0] + 1 if len(rows) == _PAGE else final
            if rows or cursor == 0:
                await run(connection, "fold_advance", {"name": _READER, "xid": reached})
            return len(rows)

    async def stats(
        self, tenant_id: uuid.UUID, *, since: datetime, until: datetime
    ) -> Sequence[dict[str, object]]:
        """Minutes with runs: minute, started, succeeded, failed, retried, cancelled, skipped,
        lag_sum_ms, lag_max_ms, lag_le (one count per bound of LAG_BOUNDS_MS, and one beyond)."""
        names = ("minute", *_COUNTS, "lag_sum_ms", "lag_max_ms", "lag_le")
        parameters = {"tenant": tenant_id, "since": since, "until": until}
        async with self._database.transaction() as connection:
            return [
                dict(zip(names, row, strict=True))
                for row in await fetch_all(connection, "stats_read", parameters)
            ]


def _columns(minutes: Minutes) -> dict[str, object]:
    keys = sorted(minutes)
    found = [minutes[key] for key in keys]
    return {
        "tenants": uuids([uuid.UUID(tenant) for tenant, _ in keys]),
        "minutes": instants([from_datetime(minute) for _, minute in keys]),
        **{name: int8s([m.counts[name] for m in found]) for name in _COUNTS},
        "lag_sums": int8s([m.lag_sum for m in found]),
        "lag_maxima": int8s([m.lag_max for m in found]),
        "lag_les": texts([",".join(map(str, m.lag_le)) for m in found]),
    }


def _call_columns(calls: Calls) -> dict[str, object]:
    keys = sorted(calls)
    sums = [calls[key][0] for key in keys]
    names = ("succeeded", "failed", "retried", "sums", "maxima")
    return {
        "tenants": uuids([uuid.UUID(tenant) for tenant, _, _ in keys]),
        "targets": texts([target for _, target, _ in keys]),
        "minutes": instants([from_datetime(minute) for _, _, minute in keys]),
        **{name: int8s([each[i] for each in sums]) for i, name in enumerate(names)},
        "les": texts([",".join(map(str, calls[key][1])) for key in keys]),
    }
