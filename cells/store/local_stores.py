"""Which local stores hold rows of a tenant, and the snapshots these are told.

The cell's own store is the owner's word about targets, secrets, definitions, calendars and configuration. A
local store has a copy of these for each tenant with rows in it: whole, and only replaced by a later one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from cells.ports import Conflict, Fence, Retryable
from cells.store.arrays import uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, fetch_all, fetch_one, fetch_row, run
from cells.store.journal import Entry
from cells.stores.ports import Snapshot, Used, share_of

_ACTOR = "service:cell"
#: States at the owner in which what is kept here is at work.
_AT_WORK = frozenset({"ACTIVE", "BARRIER", "SEALED"})
#: No transaction of a cell is open for longer.
_LONGEST_SECONDS = 60


class LocalStores(StoreBase):
    """Both ends of a snapshot."""

    # --- in the cell's own store ---------------------------------------------------------
    async def local_stores_of(self, tenant_id: uuid.UUID) -> Sequence[Used]:
        """The local stores that may hold rows of a tenant, by number."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "local_stores_of", {"tenant": tenant_id})
        return [Used(store=number, version=version, told=told) for number, version, told in rows]

    async def local_stores_among(self, tenants: Sequence[uuid.UUID]) -> Sequence[tuple[uuid.UUID, int]]:
        """Tenants, among some, and the local stores that may hold rows of them."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "local_stores_among", {"tenants": uuids(tenants)})
        return [(tenant, number) for tenant, number in rows]

    async def local_store_found(self, number: int, tenants: Sequence[uuid.UUID], *, host_id: int) -> int:
        """A local store says that it knows these tenants: those that live here and were not known to use it
        are taken down; how many."""
        named: dict[str, object] = {"tenants": uuids(tenants), "store": number}
        async with self._database.transaction() as connection:
            unknown = await fetch_all(connection, "cell_local_stores_unknown", named)
            entry = Entry()
            for (tenant,) in unknown:
                # One that a move holds is not taken down: it is not moved, and is found again.
                await fetch_one(connection, "local_store_use", {"tenant": tenant, "store": number})
                entry.intent(tenant, "store.use", str(number), 0, 0)
            if unknown:
                await self._journal.append(connection, host_id, entry)
        return len(unknown)

    async def use_local_store(self, fence: Fence, number: int, *, host_id: int) -> None:
        """From here on a local store may hold rows of a tenant. `NotOwner` where it is not active here."""
        async with self._write(fence, host_id) as (connection, entry):
            if (
                await fetch_one(connection, "local_store_use", {"tenant": fence.tenant_id, "store": number})
                is None
            ):
                raise Conflict(
                    "the tenant is being moved to another cell: what is to be kept in one region can be made"
                    " when that has ended"
                )
            entry.intent(fence.tenant_id, "store.use", str(number), 0, 0)

    async def local_stores_behind(
        self, *, limit: int, but_not: Collection[tuple[uuid.UUID, int]] = ()
    ) -> Sequence[tuple[uuid.UUID, int]]:
        """Tenants and stores whose snapshot is not this owner's latest, of each store so many."""
        tenants, stores = [tenant for tenant, _ in but_not], [number for _, number in but_not]
        async with self._database.transaction() as connection:
            await run(connection, "cell_local_stores_settle", {"longest": _LONGEST_SECONDS})
            return [
                (tenant, number)
                for tenant, number in await fetch_all(
                    connection,
                    "cell_local_stores_behind",
                    {"limit": limit, "tenants": tenants, "stores": stores},
                )
            ]

    async def snapshot_of(self, tenant_id: uuid.UUID, number: int) -> bytes:
        """A tenant's snapshot for a local store, encoded. `Retryable` where the store holds nothing of it."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "snapshot_of", {"tenant": tenant_id, "store": number})
        if row is None:
            raise Retryable(f"store {number} is not in use by tenant {tenant_id}")
        text: str = row[0]
        return text.encode()

    async def local_store_told(self, tenant_id: uuid.UUID, number: int, *, epoch: int, version: int) -> None:
        """A local store has confirmed a snapshot."""
        parameters = {"tenant": tenant_id, "store": number, "epoch": epoch, "version": version}
        async with self._database.transaction() as connection:
            await run(connection, "local_store_told", parameters)

    # --- in a local store ----------------------------------------------------------------
    async def take_snapshot(self, tenant_id: uuid.UUID, snapshot: Snapshot) -> bool:
        """Be as a snapshot says; False where a later one is known, it is known already, or the tenant was
        erased here."""
        tenant: dict[str, object] = {"tenant": tenant_id}
        place = {"epoch": snapshot.epoch, "version": snapshot.version}
        async with self._database.transaction() as connection:
            if await fetch_one(connection, "snapshot_begin", tenant | place) is None:
                return False
            state = _state_here(snapshot)
            await run(
                connection,
                "snapshot_tenant",
                tenant
                | {
                    "state": state,
                    "ownership_epoch": snapshot.ownership_epoch,
                    "config_version": snapshot.config_version,
                    "config": msgspec.json.encode(share_of(snapshot.config)).decode(),
                },
            )
            for statement, rows in (
                ("snapshot_targets_gone", snapshot.targets),
                ("snapshot_targets", snapshot.targets),
                ("snapshot_secrets_gone", snapshot.secrets),
                ("snapshot_secrets", snapshot.secrets),
                ("snapshot_definitions", snapshot.definitions),
            ):
                await run(connection, statement, tenant | {"rows": msgspec.json.encode(rows).decode()})
            await _take_calendars(connection, tenant, snapshot.calendars)
        return True

    async def snapshots_after(self, after: uuid.UUID, *, limit: int) -> Sequence[uuid.UUID]:
        """A page of the tenants that this local store has a snapshot of, by their ids."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "cell_snapshots", {"after": after, "limit": limit})
        return [row[0] for row in rows]

    async def count_strict_rows(self, tenant_id: uuid.UUID) -> tuple[int, int]:
        """Jobs and workflows of a tenant that are STRICT and have not ended."""
        async with self._database.transaction() as connection:
            jobs, workflows = await fetch_row(connection, "strict_rows", {"tenant": tenant_id})
        return jobs, workflows

    async def count_local_rows(self, tenant_id: uuid.UUID) -> tuple[int, int]:
        """Jobs and workflows of a tenant in this store, ended ones too."""
        async with self._database.transaction() as connection:
            jobs, workflows = await fetch_row(connection, "local_rows", {"tenant": tenant_id})
        return jobs, workflows


def _state_here(snapshot: Snapshot) -> str:
    """What a tenant is in a local store. Of one that is being erased nothing ever begins again."""
    if snapshot.erased:
        return "MOVED"
    return "ACTIVE" if snapshot.state in _AT_WORK else "SUSPENDED"


async def _take_calendars(
    connection: Connection, tenant: dict[str, object], rows: Sequence[dict[str, Any]]
) -> None:
    """Calendars as the snapshot has them, each change a version of this store's own: its jobs follow it as if
    somebody had changed it here."""
    known = {row[0] for row in await fetch_all(connection, "snapshot_calendars", tenant)}
    for row in rows:
        calendar = tenant | {"calendar": row["calendar_id"], "name": row["name"], "actor": _ACTOR}
        content = bytes.fromhex(row["content"].removeprefix("\\x"))
        current = await fetch_one(connection, "calendar_lock", calendar)
        if current is not None and bytes(current[2]) == content:
            await run(connection, "calendar_rename", calendar)
            continue
        statement = "calendar_insert" if current is None else "calendar_change"
        (version,) = await fetch_row(connection, statement, calendar)
        await run(connection, "calendar_version_insert", calendar | {"version": version, "content": content})
    for gone in known - {row["calendar_id"] for row in rows}:
        await run(connection, "calendar_delete", tenant | {"calendar": gone})
