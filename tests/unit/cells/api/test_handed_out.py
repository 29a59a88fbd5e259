"""What is remembered of tasks that were handed out."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from cells.api.handed_out import HandedOut
from cells.domain.ids import RunKey
from cells.domain.job import JobDefinition, Schedule, ScheduleType, TargetRef
from cells.ports import Claim
from cells.pulling import Held, PulledTask

_AT = datetime(2026, 11, 30, tzinfo=UTC)
_TENANT = uuid.UUID(int=7)


def task(n: int, *, payload: bytes | None = None) -> PulledTask:
    claim = Claim(
        tenant_id=_TENANT,
        key=RunKey(parent_id=uuid.UUID(int=n), scheduled_for=_AT),
        epoch=3,
        series=1,
        attempt=2,
        priority=2,
        shard=0,
        version=1,
        definition=JobDefinition(schedule=Schedule(type=ScheduleType.NOW), target=TargetRef(task_queue="q")),
        payload=payload,
        due_ms=0,
        released_ms=0,
        claimed_ms=0,
        lease_ms=60_000,
    )
    return PulledTask(claim=claim, lease_expires_at=_AT)


def held(task: PulledTask, *, epoch: int = 3) -> Held:
    return Held(tenant_id=_TENANT, key=task.claim.key, epoch=epoch)


def test_a_claim_is_known_once_under_its_epoch() -> None:
    handed_out, one = HandedOut(), task(1)
    handed_out.keep([one], "w")
    assert handed_out.take(held(one, epoch=4)) is None
    found = handed_out.take(held(one))
    assert found is not None
    assert (found.claim, found.worker, found.cancel_requested) == (one.claim, "w", False)
    assert handed_out.take(held(one)) is None
    assert len(handed_out) == 0


def test_the_oldest_go_first_by_number_and_by_bytes() -> None:
    handed_out = HandedOut(kept=2, kept_bytes=10)
    tasks = [task(1), task(2), task(3)]
    handed_out.keep(tasks, "w")
    assert [handed_out.take(held(one)) is not None for one in tasks] == [False, True, True]
    big = [task(4, payload=b"123456"), task(5, payload=b"123456")]
    handed_out.keep(big, "w")
    assert [handed_out.take(held(one)) is not None for one in big] == [False, True]
    handed_out.keep([task(6, payload=b"x" * 11)], "w")
    assert len(handed_out) == 0
    handed_out.keep(big[:1], "w")
    assert len(handed_out) == 1
