"""The ownership store as a protocol: conditional writes of single rows, nothing more.

Written so that a table with conditional writes and no transactions across rows can be behind
it as well as PostgreSQL: every write names the epoch it was based on, and epochs come from one
counter that only grows. A claim takes a fresh value and writes it in if the row still has the
expected epoch; of two claimers exactly one wins, the other gets `Superseded` with what holds.
A value taken by a loser is simply never used.

`tests/conformance/ownership` is what every implementation must pass.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class CellOwnership:
    """Which region owns a cell."""

    cell: str
    region: str
    epoch: int
    renewals: int  # grows with each renewal; a survivor watches it on its own clock
    promotions: int  # claims after the first


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantOwnership:
    """Which cell may act for a tenant. This row decides."""

    tenant_id: uuid.UUID
    cell: str
    epoch: int


class Superseded(Exception):
    """The row is not (or no longer) as the claim expected. `current` is what holds now."""

    def __init__(self, current: CellOwnership | TenantOwnership | None):
        super().__init__(f"superseded by {current}" if current else "no such row")
        self.current = current


class OwnershipUnavailable(Exception):
    """The store cannot be asked now; nothing is known, nothing was decided."""


class OwnershipStore(Protocol):
    """Methods raise `OwnershipUnavailable` when the store cannot be reached."""

    def cell(self, name: str) -> CellOwnership | None: ...

    def claim_cell(self, name: str, *, region: str, expected: int | None) -> CellOwnership:
        """Makes a region the owner under a fresh epoch. `expected`: the epoch seen, or None for
        a cell that has no row yet."""
        ...

    def renew_cell(self, name: str, *, region: str, epoch: int) -> CellOwnership:
        """Shows that the owner lives. `Superseded` if it is not the owner any more."""
        ...

    def tenant(self, tenant_id: uuid.UUID) -> TenantOwnership | None: ...

    def claim_tenant(self, tenant_id: uuid.UUID, *, cell: str, expected: int | None) -> TenantOwnership:
        """Puts a tenant on a cell under a fresh epoch; `expected` as in `claim_cell`."""
        ...

    def tenants_of(self, cell: str, *, after: uuid.UUID | None, limit: int) -> Sequence[TenantOwnership]:
        """The tenants of a cell in order of id, behind `after`."""
        ...

    def release_tenant(self, tenant_id: uuid.UUID, *, expected: int) -> None:
        """Forgets a tenant that is gone for good."""
        ...
