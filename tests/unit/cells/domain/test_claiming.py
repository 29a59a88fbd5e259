"""Claim plans: every occurrence either runs, waits, or is accounted for as skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.claiming import DEFAULT_GRACE_SECONDS, RUN_ALL_LIMIT, ClaimPlan, Skip, plan_claim
from cells.domain.job import Dst, Gap, JobDefinition, Misfire, Overlap, Schedule, ScheduleType, TargetRef
from cells.domain.schedule import compile_schedule

SECOND = timedelta(seconds=1)
HOURLY = Schedule(type=ScheduleType.CRON, cron="0 * * * *", time_zone="UTC")
NOON = datetime(2026, 9, 28, 12, tzinfo=UTC)


def job(schedule: Schedule = HOURLY, policy: Misfire = Misfire.RUN_ONCE, grace: int = 0) -> JobDefinition:
    return JobDefinition(
        schedule=schedule,
        target=TargetRef(target_id="tgt_x"),
        misfire_policy=policy,
        misfire_grace_seconds=grace,
    )


def hours(n: float) -> datetime:
    return NOON + timedelta(hours=n)


@pytest.mark.parametrize("policy", Misfire)
def test_on_time(policy: Misfire) -> None:
    assert plan_claim(job(policy=policy), NOON, NOON + SECOND) == ClaimPlan(NOON, (), hours(1))


@pytest.mark.parametrize("policy", Misfire)
def test_a_later_occurrence_inside_its_own_window_is_not_due(policy: Misfire) -> None:
    """Offset 59 min: claimed at 13:00:30, the 13:00 occurrence is due only at 13:59."""
    plan = plan_claim(job(policy=policy, grace=7200), NOON, hours(1) + 30 * SECOND, offset_ms=59 * 60_000)
    assert plan == ClaimPlan(NOON, (), hours(1))


def test_run_once_runs_the_latest_and_records_the_others() -> None:
    plan = plan_claim(job(), NOON, hours(3.5))
    assert plan == ClaimPlan(hours(3), (Skip(NOON, "misfire", 3),), hours(4))


def test_run_once_after_one_late_occurrence_only_runs_it() -> None:
    assert plan_claim(job(), NOON, hours(0.9)) == ClaimPlan(NOON, (), hours(1))


def test_run_once_at_the_very_second_of_the_next() -> None:
    assert plan_claim(job(), NOON, hours(1)) == ClaimPlan(hours(1), (Skip(NOON, "misfire", 1),), hours(2))


def test_run_once_inside_the_grace_catches_up_one_by_one() -> None:
    assert plan_claim(job(grace=7200), NOON, hours(1.5)) == ClaimPlan(NOON, (), hours(1))


def test_run_all_runs_each() -> None:
    assert plan_claim(job(policy=Misfire.RUN_ALL), NOON, hours(3.5)) == ClaimPlan(NOON, (), hours(1))


def test_run_all_is_capped() -> None:
    plan = plan_claim(job(policy=Misfire.RUN_ALL), NOON, hours(RUN_ALL_LIMIT + 9.5))
    # 1,010 are due (0 to 1,009): the oldest 10 are skipped.
    assert plan == ClaimPlan(hours(10), (Skip(NOON, "misfire", 10),), hours(11))
    assert plan_claim(job(policy=Misfire.RUN_ALL), hours(11), hours(RUN_ALL_LIMIT + 9.5)).skipped == ()


def test_skip_drops_what_is_later_than_the_grace() -> None:
    plan = plan_claim(job(policy=Misfire.SKIP, grace=600), NOON, hours(3.5))
    assert plan == ClaimPlan(None, (Skip(NOON, "misfire", 4),), hours(4))
    plan = plan_claim(job(policy=Misfire.SKIP, grace=600), NOON, hours(3) + timedelta(seconds=600))
    assert plan == ClaimPlan(hours(3), (Skip(NOON, "misfire", 3),), hours(4))


def test_skip_without_a_grace_forgives_a_failover() -> None:
    late = timedelta(seconds=DEFAULT_GRACE_SECONDS)
    assert plan_claim(job(policy=Misfire.SKIP), NOON, NOON + late).run_at == NOON
    assert plan_claim(job(policy=Misfire.SKIP), NOON, NOON + late + SECOND) == ClaimPlan(
        None, (Skip(NOON, "misfire", 1),), hours(1)
    )


def test_once_that_is_late() -> None:
    schedule = Schedule(type=ScheduleType.ONCE, run_at="2026-09-28T12:00:00Z")
    run = plan_claim(job(schedule), NOON, hours(500))
    assert run == ClaimPlan(NOON, (), None)
    assert run.done
    skipped = plan_claim(job(schedule, Misfire.SKIP, 60), NOON, hours(500))
    assert skipped == ClaimPlan(None, (Skip(NOON, "misfire", 1),), None)
    assert skipped.done


def test_now_runs_and_is_done() -> None:
    plan = plan_claim(job(Schedule(type=ScheduleType.NOW)), NOON, NOON)
    assert plan == ClaimPlan(NOON, (), None)


def test_the_last_one_before_the_end() -> None:
    schedule = msgspec.structs.replace(HOURLY, end_at="2026-09-28T14:00:00Z")
    assert plan_claim(job(schedule), hours(1), hours(1)).done
    assert plan_claim(job(schedule), NOON, hours(300)) == ClaimPlan(
        hours(1), (Skip(NOON, "misfire", 1),), None
    )


def test_an_occurrence_swallowed_by_a_gap_is_recorded() -> None:
    schedule = Schedule(
        type=ScheduleType.CRON, cron="0,30 2 * * *", time_zone="America/New_York", dst=Dst(gap=Gap.SKIP)
    )
    before = datetime(2026, 3, 7, 7, 30, tzinfo=UTC)
    plan = plan_claim(job(schedule), before, before + SECOND)
    turn = datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert plan == ClaimPlan(
        before, (Skip(turn - SECOND, "dst_gap", 2),), datetime(2026, 3, 9, 6, tzinfo=UTC)
    )


def test_a_swallowed_occurrence_before_the_end_is_recorded() -> None:
    schedule = Schedule(
        type=ScheduleType.CRON, cron="30 2 * * *", time_zone="America/New_York", dst=Dst(gap=Gap.SKIP),
        end_at="2026-03-09T00:00:00Z",
    )  # fmt: skip
    before = datetime(2026, 3, 7, 7, 30, tzinfo=UTC)
    plan = plan_claim(job(schedule), before, before)
    assert plan == ClaimPlan(before, (Skip(datetime(2026, 3, 8, 6, 59, 59, tzinfo=UTC), "dst_gap", 1),), None)


def test_absurd_graces_and_late_centuries() -> None:
    late = datetime(9998, 12, 31, 23, tzinfo=UTC)
    for policy in Misfire:
        assert plan_claim(job(policy=policy, grace=10**30), NOON, hours(2)).run_at == NOON
        assert plan_claim(job(policy=policy), late, late).done
    gap = Schedule(type=ScheduleType.CRON, cron="0 23 * * *", time_zone="UTC", dst=Dst(gap=Gap.SKIP))
    assert plan_claim(job(gap), late, late) == ClaimPlan(late, (), None)


def test_a_year_of_missed_minutes_is_planned_quickly() -> None:
    """Neither loops over half a million occurrences nor loses one of them."""
    schedule = Schedule(type=ScheduleType.CRON, cron="* * * * *", time_zone="Europe/Berlin")
    now = NOON + timedelta(days=365)
    calls = 0
    compiled = compile_schedule(schedule)
    original = type(compiled).next

    def counted(self: object, after: datetime) -> object:
        nonlocal calls
        calls += 1
        return original(self, after)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(compiled), "next", counted)
        plan = plan_claim(job(schedule), NOON, now)
    assert plan == ClaimPlan(now, (Skip(NOON, "misfire", 365 * 1440),), now + timedelta(minutes=1))
    assert calls < 60


@st.composite
def outages(draw: st.DrawFn) -> tuple[JobDefinition, datetime, list[int], int]:
    zone = draw(st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]))
    dst = Dst(gap=draw(st.sampled_from(Gap)), overlap=draw(st.sampled_from(Overlap)))
    text = draw(
        st.sampled_from(["*/20 * * * *", "30 1,2 * * *", "0 0 * * *", "*/10 0-3 * * *", "15 2 * * 0"])
    )
    schedule = draw(
        st.just(Schedule(type=ScheduleType.CRON, cron=text, time_zone=zone, dst=dst))
        | st.builds(
            Schedule, type=st.just(ScheduleType.RATE), every_seconds=st.integers(300, 90_000),
            start_at=st.just("2026-01-01T00:00:00Z"),
        )
    )  # fmt: skip
    definition = job(schedule, draw(st.sampled_from(Misfire)), draw(st.sampled_from([0, 90, 4000, 90_000])))
    month, day = draw(st.sampled_from([(3, 5), (10, 30), (4, 3)]))
    start = datetime(2026, month, day, tzinfo=UTC)
    waits = draw(st.lists(st.integers(0, 40 * 3600), min_size=1, max_size=20))
    return definition, start, waits, draw(st.integers(0, 250_000))


@given(outages())
@settings(max_examples=300, deadline=None)
def test_no_occurrence_is_lost_or_doubled(case: tuple[JobDefinition, datetime, list[int], int]) -> None:
    definition, now, waits, offset_ms = case
    offset = timedelta(milliseconds=offset_ms)
    compiled = compile_schedule(definition.schedule)
    first = compiled.first(now)
    assert first is not None
    waiting, ran, accounted, keys = first.at, 0, 0, set()
    for wait in waits:
        now = max(now, waiting + offset) + timedelta(seconds=wait)  # claimed when due, or later
        plan = plan_claim(definition, waiting, now, offset_ms=offset_ms)
        for key in (*([plan.run_at] if plan.run_at else ()), *(s.at for s in plan.skipped)):
            assert key not in keys  # each is a row's key
            keys.add(key)
        if plan.run_at is not None:
            assert plan.run_at + offset <= now  # never early
            ran += 1
        accounted += sum(s.count for s in plan.skipped if s.reason == "misfire")
        assert plan.next is not None
        assert plan.next > waiting
        waiting = plan.next
    assert ran + accounted == compiled.count(first.at - SECOND, waiting - SECOND)
