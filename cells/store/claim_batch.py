"""What one claim transaction writes, and its columns as the statements take them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from cells.domain.claiming import Skip
from cells.domain.ids import RunKey
from cells.domain.job import Delivery, OverlapPolicy
from cells.ports import Claim, Member
from cells.store.arrays import (
    bools,
    datetime_to_ms,
    from_datetime,
    from_ms,
    instants,
    int2s,
    int4s,
    int8s,
    labels,
    uuids,
)

_EPOCH_SECONDS = 946_684_800  # 2000-01-01, where PostgreSQL counts from, in Unix seconds


def from_unix_seconds(s: int) -> int:
    """PostgreSQL's microseconds."""
    return (s - _EPOCH_SECONDS) * 1_000_000


def to_unix_seconds(micros: int) -> int:
    """From PostgreSQL's microseconds, rounded down."""
    return micros // 1_000_000 + _EPOCH_SECONDS


class Insert(NamedTuple):
    """A claimed occurrence."""

    member: Member
    claim: Claim
    due: int  # microseconds


class Skipped(NamedTuple):
    """Occurrences that deliberately do not run."""

    member: Member
    skip: Skip
    epoch: int
    due: int  # microseconds
    version: int
    priority: int
    shard: int
    target_id: str


class Cancelled(NamedTuple):
    """A waiting run that a later occurrence of its job displaced."""

    tenant_id: uuid.UUID
    parent_id: uuid.UUID
    at: datetime
    ordinal: int
    epoch: int
    region_policy: str


class ClaimBatch:
    """Filled by the planner, written in one go."""

    def __init__(self, *, now: datetime) -> None:
        self.now = now  # the database's
        self.now_ms = datetime_to_ms(now)
        self.inserts: list[Insert] = []
        self.skips: list[Skipped] = []
        self.advances: list[tuple[Member, int | None, int | None]] = []  # next and due, microseconds
        self.updates: list[Claim] = []
        self.nexts: list[Member] = []
        # What workers poll for, taken out of `inserts` and `updates`:
        self.offers: list[Insert] = []
        self.offered_again: list[Claim] = []
        # What workflows are to do, taken out of them, too:
        self.starts: list[Insert] = []
        self.starts_again: list[Claim] = []
        self.buffered: list[tuple[Insert, datetime]] = []  # wait for the one before; when to look
        self.put_off = 0  # buffered ones that went on waiting
        self.displaced: list[Cancelled] = []
        self.holding: list[Claim] = []  # those that take a place of their concurrency key
        self.early: list[Member] = []  # not now: they come back a moment later
        self.parked = False  # some found no place, and were written as waiting

    def empty(self) -> bool:
        """Whether there is nothing to write."""
        written = (self.inserts, self.skips, self.advances, self.updates, self.offers, self.offered_again)
        begun = self.starts or self.starts_again
        return not (any(written) or begun or self.buffered or self.put_off or self.parked)

    def put_back(self, insert: Insert) -> None:
        """Leave out an occurrence, with all that its job would do by it."""
        member = insert.member
        self.inserts.remove(insert)
        self.skips = [skip for skip in self.skips if skip.member is not member]
        self.advances = [advance for advance in self.advances if advance[0] is not member]
        self.nexts = [
            n
            for n in self.nexts
            if (n.tenant_id, n.parent_id) != (member.tenant_id, member.parent_id) or n.is_run
        ]
        self.early.append(member)

    def claims(self) -> list[Claim]:
        """All that was won."""
        return [*(insert.claim for insert in self.inserts), *self.updates]

    def insert_columns(self, host_id: int | None) -> dict[str, object]:
        """For `claim_insert_runs`."""
        claims = [insert.claim for insert in self.inserts]
        return {
            **claim_keys(claims),
            "shards": int2s([c.shard for c in claims]),
            "priorities": int2s([c.priority for c in claims]),
            "versions": int4s([c.version for c in claims]),
            "dues": instants([insert.due for insert in self.inserts]),
            "targets": labels([c.definition.target.label for c in claims]),
            "once": bools([c.definition.delivery is Delivery.AT_MOST_ONCE for c in claims]),
            "guards": bools([is_guarded(c) for c in claims]),
            **self._holding(claims, host_id),
        }

    def buffer_columns(self) -> dict[str, object]:
        """For `overlap_insert_buffered`."""
        claims = [insert.claim for insert, _ in self.buffered]
        return {
            "tenants": uuids([c.tenant_id for c in claims]),
            "parents": uuids([c.key.parent_id for c in claims]),
            "instants": instants([from_datetime(c.key.scheduled_for) for c in claims]),
            "shards": int2s([c.shard for c in claims]),
            "priorities": int2s([c.priority for c in claims]),
            "versions": int4s([c.version for c in claims]),
            "timers": instants([from_datetime(at) for _, at in self.buffered]),
            "dues": instants([insert.due for insert, _ in self.buffered]),
            "targets": labels([c.definition.target.label for c in claims]),
        }

    def update_columns(self, host_id: int | None) -> dict[str, object]:
        """For `claim_update_runs`."""
        return {
            **claim_keys(self.updates),
            "once": bools([c.definition.delivery is Delivery.AT_MOST_ONCE for c in self.updates]),
            **self._holding(self.updates, host_id),
        }

    def advance_columns(self) -> dict[str, object]:
        """For `claim_advance_jobs`."""
        return {
            "tenants": uuids([m.tenant_id for m, _, _ in self.advances]),
            "jobs": uuids([m.parent_id for m, _, _ in self.advances]),
            "nexts": instants([following for _, following, _ in self.advances]),
            "dues": instants([due for _, _, due in self.advances]),
        }

    def skip_columns(self) -> dict[str, object]:
        """For `claim_insert_skipped`."""
        return {
            "tenants": uuids([s.member.tenant_id for s in self.skips]),
            "parents": uuids([s.member.parent_id for s in self.skips]),
            "instants": instants([from_datetime(s.skip.at) for s in self.skips]),
            "shards": int2s([s.shard for s in self.skips]),
            "priorities": int2s([s.priority for s in self.skips]),
            "versions": int4s([s.version for s in self.skips]),
            "epochs": int8s([s.epoch for s in self.skips]),
            "dues": instants([s.due for s in self.skips]),
            "targets": labels([s.target_id for s in self.skips]),
            "reasons": labels([s.skip.reason for s in self.skips]),
            "skips": int4s([s.skip.count for s in self.skips]),
            "now": self.now,
        }

    def _holding(self, claims: Sequence[Claim], host_id: int | None) -> dict[str, object]:
        start = from_datetime(self.now)
        return {
            "epochs": int8s([c.epoch for c in claims]),
            "leases": instants([start + c.lease_ms * 1000 for c in claims]),
            "released": instants([from_ms(c.released_ms) if c.released_ms else None for c in claims]),
            "host": host_id,
            "now": self.now,
        }


def is_guarded(claim: Claim) -> bool:
    """Whether the next occurrence looks at this one before it begins."""
    return claim.definition.overlap_policy is not OverlapPolicy.ALLOW


def claim_keys(claims: Sequence[Claim]) -> dict[str, object]:
    """The runs of claims."""
    return {
        "tenants": uuids([c.tenant_id for c in claims]),
        "parents": uuids([c.key.parent_id for c in claims]),
        "instants": instants([from_datetime(c.key.scheduled_for) for c in claims]),
        "ordinals": int4s([c.key.ordinal for c in claims]),
    }


def job_keys(members: Sequence[Member]) -> dict[str, object]:
    """Jobs and the occurrences they should wait for."""
    return {
        "tenants": uuids([m.tenant_id for m in members]),
        "jobs": uuids([m.parent_id for m in members]),
        "instants": instants([from_unix_seconds(m.scheduled_for) for m in members]),
    }


def run_keys(members: Sequence[Member]) -> dict[str, object]:
    """Runs that should wait."""
    return {
        "tenants": uuids([m.tenant_id for m in members]),
        "parents": uuids([m.parent_id for m in members]),
        "instants": instants([from_unix_seconds(m.scheduled_for) for m in members]),
        "ordinals": int4s([m.ordinal for m in members]),
    }


def version_keys(members: Sequence[Member], versions: Sequence[int] | None = None) -> dict[str, object]:
    """The versions that members name, or others of the same jobs."""
    return {
        "tenants": uuids([m.tenant_id for m in members]),
        "jobs": uuids([m.parent_id for m in members]),
        "versions": int4s([m.generation for m in members] if versions is None else versions),
    }


def occurrence_keys(keys: Sequence[tuple[Member, RunKey]]) -> dict[str, object]:
    """Runs by key."""
    return {
        "tenants": uuids([m.tenant_id for m, _ in keys]),
        "parents": uuids([key.parent_id for _, key in keys]),
        "instants": instants([from_datetime(key.scheduled_for) for _, key in keys]),
        "ordinals": int4s([key.ordinal for _, key in keys]),
    }
