"""What requests with an Idempotency-Key came to: kept for a day, by the transaction that made it."""

from __future__ import annotations

import uuid

from cells.ports import KeyReused
from cells.store.database import Connection, fetch_one, run

#: Route, key, and the fingerprint of the request's body.
Keyed = tuple[str, str, bytes]


async def made_before(connection: Connection, tenant_id: uuid.UUID, keyed: Keyed) -> bytes | None:
    """What was kept under the key; None if nothing was. `KeyReused` where another body came with it."""
    route, key, fingerprint = keyed
    known = await fetch_one(connection, "key_get", {"tenant": tenant_id, "route": route, "key": key})
    if known is None:
        return None
    if known[0] != fingerprint:
        raise KeyReused("the idempotency key came with another request before")
    return bytes(known[2])


async def keep(
    connection: Connection, tenant_id: uuid.UUID, keyed: Keyed, made: bytes, *, status: int
) -> None:
    """Keep what was made under the key. A `UniqueViolation` where another request was faster."""
    route, key, fingerprint = keyed
    stored = {"tenant": tenant_id, "route": route, "key": key, "fingerprint": fingerprint}
    await run(connection, "key_put", {**stored, "status": status, "body": made})
