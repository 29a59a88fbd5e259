"""Taking work by itself: what becomes of it when the store does not answer."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, cast

import pytest

from cells.domain.job import Priority
from cells.execution.held import Held
from cells.execution.intake import Intake
from cells.execution.lanes import Lane
from cells.execution.limits import Limits
from cells.execution.targets import Target
from cells.observability.metrics import Metrics
from cells.ports import ClaimResult, Member, Retryable


class _Store:
    """Refuses batches of more than one; does not answer for some members."""

    def __init__(self, silent: set[int], *, picky: bool = False):
        self._silent = silent
        self._picky = picky

    async def claim(self, members: Sequence[Member], **_: Any) -> ClaimResult:
        if self._picky and len(members) > 1:
            raise ValueError("not together")
        if any(member.ordinal in self._silent for member in members):
            raise Retryable("away")
        return ClaimResult(claims=(), next_members=(), stale=members, too_early=())


class _Onward:
    def __init__(self) -> None:
        self.added: list[int] = []

    async def add(self, members: Sequence[Member]) -> None:
        self.added += [member.ordinal for member in members]

    async def announce(self, queues: Sequence[object]) -> None:
        assert not queues

    async def refund(self, members: Sequence[Member]) -> None:
        assert members


class _Host:
    host_id, name = 1, "h"


class _Clock:
    def monotonic(self) -> float:
        return 1.0


def member(n: int) -> Member:
    return Member(
        tenant_id=uuid.UUID(int=1), parent_id=uuid.UUID(int=2), scheduled_for=0, ordinal=n, is_run=True,
        priority=2, due_ms=0, shard=0,
    )  # fmt: skip


async def _ignore(_: object) -> None:
    raise AssertionError("nothing is to be called")


def intake(store: _Store) -> tuple[Intake, Lane, _Onward]:
    lane, onward = Lane(Priority.DEFAULT, 4, _ignore), _Onward()
    made = Intake(
        cast(Any, store), cast(Any, None), cast(Any, onward), cast(Any, None), cast(Any, Limits),
        cast(Any, _Host), cast(Any, _Clock()), Metrics(), lanes={Priority.DEFAULT: lane}, held=Held(),
    )  # fmt: skip
    return made, lane, onward


@pytest.mark.parametrize("silent", [set(), {0}])
async def test_places_kept_at_a_target_are_given_up_however_the_claim_ends(silent: set[int]) -> None:
    made, lane, onward = intake(_Store(silent))
    target = Target((uuid.UUID(int=1), "tgt_a"))
    target.load.coming = 2
    lane.back.append((target, [member(0), member(1)]))
    try:
        assert await made._take(lane) == 2
        assert not silent
    except Retryable:
        assert onward.added == [0, 1]
    assert target.load.coming == 0


async def test_what_was_not_asked_for_comes_back_too() -> None:
    made, lane, onward = intake(_Store({1}, picky=True))
    with pytest.raises(Retryable):
        await made._claim(lane, [member(n) for n in range(4)])
    assert sorted(onward.added) == [1, 2, 3]
