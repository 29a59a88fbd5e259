"""Small pure parts: shares, the definition cache, journal entries, folding."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.ids import derived_id
from cells.domain.job import JobDefinition, Schedule, ScheduleType, TargetRef
from cells.ports import JournalBody
from cells.store.definitions import DefinitionCache
from cells.store.hosts import fair_share
from cells.store.journal import Entry
from cells.store.stats import Minutes, fold


@given(st.sets(st.integers(1, 1000), min_size=1, max_size=40))
def test_shares_cover_all_shards_evenly(hosts: set[int]) -> None:
    shares = [fair_share(host, sorted(hosts)) for host in hosts]
    assert sum(shares) == 256
    assert max(shares) - min(shares) <= 1
    assert fair_share(0, sorted(hosts)) == 0


def _definition(kind: ScheduleType) -> JobDefinition:
    return JobDefinition(schedule=Schedule(type=kind, every_seconds=60), target=TargetRef(target_id="tgt_x"))


def test_recurring_definitions_are_kept_within_bounds() -> None:
    cache = DefinitionCache(entries=2, payload_bytes=10)
    tenant = uuid.UUID(int=1)
    rate, once = _definition(ScheduleType.RATE), _definition(ScheduleType.ONCE)

    def put(job: int, definition: JobDefinition, payload: bytes | None) -> None:
        assert cache.put(tenant, uuid.UUID(int=job), 1, definition, payload, None) == (
            definition,
            payload,
            None,
        )

    def kept() -> list[int]:
        return [job for job in range(1, 9) if cache.get(tenant, uuid.UUID(int=job), 1)]

    put(1, once, None)
    assert kept() == []
    put(1, rate, b"1234")
    put(2, rate, None)
    put(2, rate, None)
    assert kept() == [1, 2]
    put(3, rate, b"1234")
    assert kept() == [2, 3]
    put(4, rate, b"123456789")
    assert kept() == [4]
    put(5, rate, b"far too long")
    assert kept() == []
    assert cache.get(tenant, uuid.UUID(int=4), 2) is None


def test_an_entry_counts_what_is_metered() -> None:
    p, q = (derived_id(tenant_id=uuid.UUID(int=1), key=key).hex for key in "pq")
    workflow = "0190a5b4c3d27a5e8f00000000000001"  # version 7: an execution
    entry = Entry()
    entry.ended("t", p, 1, 0, 9, "RETRY_WAIT", region_policy="HOME_ASYNC", egress_bytes=5)
    entry.ended("t", p, 1, 0, 10, "SUCCEEDED", region_policy="HOME_ASYNC", lag_ms=3)
    entry.ended("t", q, 1, 0, 0, "CANCELLED", region_policy="HOME_ASYNC", attempts=0)
    entry.ended("u", p, 1, 0, 9, "RELEASED", region_policy="HOME_ASYNC", attempts=0)
    # Callbacks and steps are attempts, and no runs.
    entry.ended("t", p, 1, -1, 9, "SUCCEEDED", region_policy="HOME_ASYNC")
    entry.ended("t", workflow, 1, 4, 9, "SUCCEEDED", region_policy="HOME_ASYNC")
    entry.skipped(uuid.UUID(int=1), uuid.UUID(int=2), datetime(2026, 9, 28, tzinfo=UTC), 7)
    body = msgspec.json.decode(entry.body(), type=JournalBody)
    assert sorted(body.counts) == [
        ("t", "egress_bytes", "HOME_ASYNC", 5),
        ("t", "job_runs", "HOME_ASYNC", 2),
        ("t", "run_attempts", "HOME_ASYNC", 4),
    ]
    ends = ["RETRY_WAIT", "SUCCEEDED", "CANCELLED", "RELEASED", "SUCCEEDED", "SUCCEEDED", "SKIPPED"]
    assert [f[5] for f in body.finished] == ends


def test_folding_adds_up_per_tenant_and_minute() -> None:
    minute, later = datetime(2026, 9, 28, 12, tzinfo=UTC), datetime(2026, 9, 28, 12, 1, tzinfo=UTC)
    body = JournalBody(
        claimed=[("a", "p", 1, 0, 1), ("b", "p", 1, 0, 1)],
        finished=[("a", "p", 1, 0, 1, "SUCCEEDED", 5), ("a", "q", 1, 0, 1, "RELEASED", -1)],
    )
    folded: Minutes = {}
    for at in (minute, minute, later):
        fold(folded, at, body)
    assert {key: found.counts["started"] for key, found in folded.items()} == {
        ("a", minute): 2,
        ("b", minute): 2,
        ("a", later): 1,
        ("b", later): 1,
    }
    a = folded["a", minute]
    assert (a.counts["succeeded"], a.lag_sum, a.lag_max, a.lag_le[0], sum(a.lag_le)) == (2, 10, 5, 2, 2)
