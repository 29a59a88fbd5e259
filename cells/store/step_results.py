"""What steps of workflows answer, where their attempts keep only its beginning."""

from __future__ import annotations

from collections.abc import Iterable

from cells.ports import Completion
from cells.store.arrays import int4s, texts, uuids
from cells.store.database import Connection, run


async def hand_on(connection: Connection, ended: Iterable[Completion]) -> None:
    """Their workflows, told in this transaction that they have ended, get all of it. Free, where none is
    longer than its attempt keeps."""
    longer = [c for c in ended if c.result is not None]
    if longer:
        columns = {
            "tenants": uuids([c.tenant_id for c in longer]),
            "parents": uuids([c.key.parent_id for c in longer]),
            "ordinals": int4s([c.key.ordinal for c in longer]),
            "results": texts([c.result for c in longer]),
        }
        await run(connection, "complete_results", columns)
