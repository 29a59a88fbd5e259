"""The herd map counts what walking every job would count, within its budget."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.herd import Alike, Herd, expand
from cells.domain.job import Schedule, ScheduleType
from cells.domain.schedule import compile_schedule

START = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)  # Berlin's clock jumps inside of the range
UNTIL = START + timedelta(hours=8)

schedules = st.one_of(
    st.sampled_from(["*/5 * * * *", "0 * * * *", "30 2 * * *", "7,8 3-5 * * *"]).map(
        lambda cron: Schedule(type=ScheduleType.CRON, cron=cron, time_zone="Europe/Berlin")
    ),
    st.tuples(st.sampled_from([7, 60, 90, 600, 3601]), st.integers(0, 7200), st.booleans()).map(
        lambda drawn: Schedule(
            type=ScheduleType.RATE,
            every_seconds=drawn[0],
            start_at=(START - timedelta(seconds=drawn[1])).isoformat(),
            end_at=(START + timedelta(hours=5)).isoformat() if drawn[2] else None,
        )
    ),
)
offsets = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3)), min_size=1, max_size=5)


def walked(groups: list[Alike]) -> Counter[int]:
    found: Counter[int] = Counter()
    for group in groups:
        at = compile_schedule(group.schedule).next(group.waits_for)
        while at is not None and at.at < UNTIL:
            for offset, count in group.offsets:
                due = at.at + timedelta(seconds=offset)
                if due < UNTIL:
                    found[int(due.timestamp()) // 60] += count
            at = compile_schedule(group.schedule).next(at.at)
    return found


@settings(max_examples=60, deadline=None)
@given(drawn=st.lists(st.tuples(schedules, offsets), max_size=5))
def test_it_counts_what_walking_counts(drawn: list[tuple[Schedule, list[tuple[int, int]]]]) -> None:
    groups = []
    for schedule, spread in drawn:
        first = compile_schedule(schedule).first(START)
        if first is not None:
            groups.append(Alike(schedule=schedule, waits_for=first.at, offsets=spread))
    herd = Herd()
    for _ in expand(groups, UNTIL, herd, budget=10**9):
        pass
    assert herd.minutes == walked(groups)
    assert (herd.expanded, herd.left_out) == (sum(group.jobs for group in groups), 0)


def test_the_budget_goes_to_the_biggest() -> None:
    def rate(every: int, jobs: int) -> Alike:
        schedule = Schedule(type=ScheduleType.RATE, every_seconds=every, start_at=START.isoformat())
        return Alike(schedule=schedule, waits_for=START, offsets=[(0, jobs)])

    groups = [rate(1, 2), rate(3600, 1), rate(3600, 500)]
    herd = Herd()
    spent = list(expand(groups, UNTIL, herd, budget=1000))
    assert (herd.expanded, herd.left_out) == (501, 2)
    assert spent == sorted(spent)
    assert spent[-1] <= 1000
    assert sum(herd.minutes.values()) == 7 * 501
