"""Leases of processes, by the database's clock, and the shards they share."""

from __future__ import annotations

from collections.abc import Sequence

from cells.contract import SHARDS
from cells.ports import HostLease, Retryable
from cells.store import arrays
from cells.store.base import StoreBase
from cells.store.database import Purpose, fetch_all, fetch_one, run


def fair_share(host_id: int, dispatchers: Sequence[int]) -> int:
    """How many shards a host should hold: equal parts, the remainder to the oldest hosts."""
    if host_id not in dispatchers:
        return 0
    part, rest = divmod(SHARDS, len(dispatchers))
    return part + (sorted(dispatchers).index(host_id) < rest)


class Hosts(StoreBase):
    """Host incarnations and shard leases."""

    async def register_host(self, *, name: str, roles: Sequence[str], lease_ms: int) -> HostLease:
        """A new incarnation; `name` is unique per process start. The lease may be shorter than asked for:
        it ends with the cell's own. `Retryable` while that has ended."""
        async with self._database.transaction(Purpose.LEASE) as connection:
            row = await fetch_one(
                connection, "host_register", {"name": name, "roles": list(roles), "lease_ms": lease_ms}
            )
            if row is None:
                raise Retryable("nobody owns this cell here now")
            self._host_name = name
            return HostLease(
                host_id=row[0], name=name, lease_ms=row[2], database_time=row[1], cell_epoch=row[3]
            )

    async def renew_host(self, *, host_id: int, lease_ms: int) -> HostLease | None:
        """Extend the lease from now; None if it, or the cell's, has ended (it never comes back)."""
        async with self._database.transaction(Purpose.LEASE) as connection:
            row = await fetch_one(connection, "host_renew", {"host": host_id, "lease_ms": lease_ms})
            if row is None:
                return None
            return HostLease(
                host_id=host_id, name=row[0], lease_ms=row[2], database_time=row[1], cell_epoch=row[3]
            )

    async def retire_host(self, *, host_id: int) -> None:
        """End the lease at once."""
        async with self._database.transaction(Purpose.LEASE) as connection:
            await run(connection, "host_retire", {"host": host_id})

    async def share_shards(self, *, host_id: int) -> frozenset[int]:
        """Shards held after taking or giving what the fair share asks for. Empty once the host's
        own lease has ended. Writes nothing when nothing has to change."""
        async with self._database.transaction() as connection:
            dispatchers = [row[0] for row in await fetch_all(connection, "shards_dispatchers")]
            shards = await fetch_all(connection, "shards_look")
            held = {shard for holder, _, shard in shards if holder == host_id}
            share = fair_share(host_id, dispatchers)
            if share == 0:
                return frozenset()
            if len(held) > share:
                surplus = sorted(held)[share:]
                await run(connection, "shards_give", {"host": host_id, "shards": arrays.int2s(surplus)})
                held -= set(surplus)
            elif len(held) < share and not all(live for _, live, _ in shards):
                taken = await fetch_all(
                    connection, "shards_take", {"host": host_id, "count": share - len(held)}
                )
                held |= {row[0] for row in taken}
            return frozenset(held)
