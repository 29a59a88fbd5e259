"""Whether the destination has what the source has, to the last row.

Two looks. *Before the seal* all rows are compared, while the source goes on: checksums in buckets first, then
row by row where buckets differ. A row that changed since the source's snapshot is left to the second look;
every other one must be the same on both sides. *After the seal* the rows that changed since are compared, few
as they are, and the numbers of rows of each table, which show what was deleted on one side only.
The destination reads the source itself, with the role that copies.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from dataclasses import dataclass

import msgspec

from cells.ports import Conflict
from cells.store.database import Connection
from cells.store.transfer import TransferStore
from cells.transfer.tables import COPIED, FATES, Fate

BUCKETS = 4096
#: Keys compared in one statement.
_PAGE = 20_000
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What a look has found equal."""

    rows: int  # in all tables
    one_by_one: int  # of these, looked at row by row
    since: str  # what changed from this transaction on is left to the next look


async def compare_settled(
    store: TransferStore, tenant: uuid.UUID, here: Connection, there: Connection, *, patience: float
) -> Compared:
    """Every row that did not change since this began is the same on both sides. `Conflict` names what is
    not, when the patience (seconds) for what is still on its way is over."""
    since: str = await store.one(there, "link_snapshot")
    rows = one_by_one = 0
    suspects: dict[str, list[int]] = {}
    for table in COPIED:
        theirs, ours = await asyncio.gather(
            store.rows(there, "transfer_digest", table=table, tenant=tenant, buckets=BUCKETS),
            store.rows(here, "transfer_digest", table=table, tenant=tenant, buckets=BUCKETS),
        )
        rows += sum(n for _, n, _ in theirs)
        known = {bucket: (n, checksum) for bucket, n, checksum in ours}
        differ = [bucket for bucket, n, checksum in theirs if known.get(bucket) != (n, checksum)]
        if differ:
            suspects[table] = differ
    until = asyncio.get_running_loop().time() + patience
    while suspects:
        left: dict[str, list[int]] = {}
        for table, buckets in suspects.items():
            settled = await _keys(store, there, table, tenant, since, buckets)
            one_by_one += len(settled)
            missing = await _missing(store, here, table, tenant, settled)
            if missing and FATES[table] is not Fate.AGES:
                left[table] = buckets
        suspects = left
        if suspects and asyncio.get_running_loop().time() > until:
            raise Conflict(f"rows differ that nobody changes: {', '.join(sorted(suspects))}")
        if suspects:
            await asyncio.sleep(_PAUSE_SECONDS)
    return Compared(rows=rows, one_by_one=one_by_one, since=since)


async def compare_tail(
    store: TransferStore,
    tenant: uuid.UUID,
    heres: tuple[Connection, ...],
    theres: tuple[Connection, ...],
    *,
    since: str,
) -> Compared:
    """After the seal: what changed since the first look is the same, and no side has more rows. `Conflict`
    names what is not. Tables are compared side by side, as many as there are sessions."""
    totals: defaultdict[str, int] = defaultdict(int)
    waiting = list(reversed(COPIED))

    async def work(here: Connection, there: Connection) -> None:
        while waiting:
            table = waiting.pop()
            ours = asyncio.ensure_future(store.one(here, "transfer_count", table=table, tenant=tenant))
            theirs, changed = await store.row(
                there, "transfer_tail", table=table, tenant=tenant, since=since
            ) or (0, [])
            count = await ours
            missing = await _missing(store, here, table, tenant, changed)
            totals["rows"] += theirs
            totals["changed"] += len(changed)
            if FATES[table] is not Fate.AGES and (missing or count != theirs):
                raise Conflict(
                    f"{table} differs after the seal: {theirs} rows there and {count} here,"
                    f" {len(missing)} of {len(changed)} changed ones not the same"
                )

    async with asyncio.TaskGroup() as group:
        for here, there in zip(heres, theres, strict=True):
            group.create_task(work(here, there))
    return Compared(rows=totals["rows"], one_by_one=totals["changed"], since=since)


async def _keys(
    store: TransferStore,
    there: Connection,
    table: str,
    tenant: uuid.UUID,
    since: str,
    buckets: list[int],
) -> list[object]:
    """Keys with checksums of settled rows of some buckets at the source."""
    found = await store.rows(
        there, "transfer_rows", table=table, tenant=tenant, buckets=BUCKETS, wanted=buckets, since=since
    )
    return [key for (key,) in found]


async def _missing(
    store: TransferStore, here: Connection, table: str, tenant: uuid.UUID, keys: list[object]
) -> list[object]:
    missing: list[object] = []
    for start in range(0, len(keys), _PAGE):
        page = msgspec.json.encode(keys[start : start + _PAGE]).decode()
        missing += [
            key
            for (key,) in await store.rows(here, "transfer_missing", table=table, tenant=tenant, keys=page)
        ]
    return missing
