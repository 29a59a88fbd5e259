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
from collections.abc import Mapping, Sequence
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
class PromotionRecord:
    """A region whose cluster became (or was about to become) a cell's primary. It is written before the
    cluster is promoted, and again after it, when it is known where exactly the parent was left."""

    cell: str
    timeline: int  # that began with it; no two of a cell are alike
    epoch: int
    region: str
    parent: int  # timeline; 0 for the cell's first primary, which was not promoted
    fork: int  # position in the parent's log


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

    def close(self) -> None:
        """Lets go of its connections."""
        ...

    def cell(self, name: str) -> CellOwnership | None: ...

    def claim_cell(
        self, name: str, *, region: str, expected: int | None, renewals: int | None = None
    ) -> CellOwnership:
        """Makes a region the owner under a fresh epoch. `expected`: the epoch seen, or None for
        a cell that has no row yet. `renewals`: and only if it was not renewed since those were seen;
        without that, an owner that wakes up just then would believe itself to be one beside us."""
        ...

    def renew_cell(self, name: str, *, region: str, epoch: int) -> CellOwnership:
        """Shows that the owner lives. `Superseded` if it is not the owner any more."""
        ...

    def promotions(self, cell: str) -> Sequence[PromotionRecord]:
        """Every promotion of a cell, by timeline, whether it came to be or not."""
        ...

    def record_promotion(self, record: PromotionRecord) -> None:
        """Takes the number of a timeline, or says better where its parent was left. `Superseded(None)`
        where the number is another promotion's."""
        ...

    def cast_vote(self, cell: str, *, epoch: int, region: str, place: str) -> None:
        """What a region has, frozen, for the takeover of `epoch`. The first one stands."""
        ...

    def votes(self, cell: str, *, epoch: int, regions: Sequence[str]) -> Mapping[str, str]:
        """The places of those regions that have voted."""
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
