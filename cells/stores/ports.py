"""What snapshots and the API need of a store, at either end (`cells.store.local_stores`)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from cells.ports import Fence, TenantConfig
from cells.stores.registry import PARTS

#: What of a tenant is limited in each store by itself.
_QUOTAS = (
    "job_runs_per_second",
    "strict_jobs_per_second",
    "pending_timers",
    "running_runs",
    "workflow_steps_per_second",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """A local store that may hold rows of a tenant."""

    store: int
    version: int  # of the snapshot it is to have
    told: bool  # whether it has that one, from this owner


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a local store has to know of a tenant. Rows are as they lie in the store that sent them."""

    epoch: int  # of the cell's owner
    version: int
    state: str
    erased: bool = False  # it is halted for good
    ownership_epoch: int
    config_version: int
    config: TenantConfig
    targets: list[dict[str, Any]]
    secrets: list[dict[str, Any]]
    definitions: list[dict[str, Any]]
    calendars: list[dict[str, Any]]


def share_of(config: TenantConfig) -> TenantConfig:
    """The part of a tenant's quotas that holds in one local store: what is not 0 is at least 1."""
    parts = {name: max(1, quota // PARTS) if (quota := getattr(config, name)) else 0 for name in _QUOTAS}
    return msgspec.structs.replace(config, **parts)


class LocalStores(Protocol):
    """Which local stores hold rows of a tenant, and what these are told of it."""

    async def local_stores_of(self, tenant_id: uuid.UUID) -> Sequence[Used]:
        """The local stores that may hold rows of a tenant, by number."""
        ...

    async def local_stores_among(self, tenants: Sequence[uuid.UUID]) -> Sequence[tuple[uuid.UUID, int]]:
        """Tenants, among some, and the local stores that may hold rows of them."""
        ...

    async def local_store_found(self, number: int, tenants: Sequence[uuid.UUID], *, host_id: int) -> int:
        """A local store says that it knows these tenants: those that live here and were not known to use it
        are taken down; how many."""
        ...

    async def use_local_store(self, fence: Fence, number: int, *, host_id: int) -> None:
        """From here on a local store may hold rows of a tenant. `NotOwner` where it is not active here,
        `Conflict` while it is being moved."""
        ...

    async def confirm(self) -> None:
        """See `confirming.ConfirmStore.confirm`."""
        ...

    async def local_stores_behind(
        self, *, limit: int, but_not: Collection[tuple[uuid.UUID, int]] = ()
    ) -> Sequence[tuple[uuid.UUID, int]]:
        """Tenants and stores whose snapshot is not this owner's latest, of each store so many."""
        ...

    async def snapshot_of(self, tenant_id: uuid.UUID, number: int) -> bytes:
        """A tenant's snapshot for a local store, encoded. `Retryable` where the store holds nothing of it."""
        ...

    async def local_store_told(self, tenant_id: uuid.UUID, number: int, *, epoch: int, version: int) -> None:
        """A local store has confirmed a snapshot."""
        ...

    async def take_snapshot(self, tenant_id: uuid.UUID, snapshot: Snapshot) -> bool:
        """Be as a snapshot says; False where a later one is known, it is known already, or the tenant was
        erased here."""
        ...

    async def snapshots_after(self, after: uuid.UUID, *, limit: int) -> Sequence[uuid.UUID]:
        """A page of the tenants that this local store has a snapshot of, by their ids."""
        ...

    async def count_strict_rows(self, tenant_id: uuid.UUID) -> tuple[int, int]:
        """Jobs and workflows of a tenant that are STRICT and have not ended."""
        ...

    async def count_local_rows(self, tenant_id: uuid.UUID) -> tuple[int, int]:
        """Jobs and workflows of a tenant in this store, ended ones too."""
        ...
