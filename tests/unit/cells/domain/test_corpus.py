"""Instants that must come out right: collected from other schedulers' bug trackers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cells.domain.instants import format_instant
from cells.domain.job import Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.schedule import ScheduleError, compile_schedule, normalise, preview

CASES = Path(__file__).parents[3] / "cases"
BEFORE = datetime(1971, 1, 1, tzinfo=UTC)


def _cases(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (CASES / name).read_text().splitlines() if line.strip()]


def _dst(case: dict) -> Dst:
    return Dst(gap=Gap(case["policy"]["gap"].upper()), overlap=Overlap(case["policy"]["overlap"].upper()))


def _id(case: dict) -> str:
    return case.get("id") or f"{case['tz']}-{case['local']}"


@pytest.mark.parametrize("case", _cases("cron.jsonl"), ids=_id)
def test_cron(case: dict) -> None:
    schedule = Schedule(type=ScheduleType.CRON, cron=case["expr"], time_zone=case["tz"], dst=_dst(case))
    after = datetime.fromisoformat(case["after_utc"])
    if not case["expect_utc"]:
        with pytest.raises(ScheduleError) as refused:
            normalise(schedule, after)
        assert [pointer for pointer, _ in refused.value.faults] == ["/schedule/cron"]
        return
    found = preview(normalise(schedule, after), after, len(case["expect_utc"]))
    assert [format_instant(p.at) for p in found] == case["expect_utc"]


@pytest.mark.parametrize("case", _cases("once.jsonl"), ids=_id)
def test_once(case: dict) -> None:
    schedule = Schedule(type=ScheduleType.ONCE, run_at=case["local"], time_zone=case["tz"], dst=_dst(case))
    found = preview(normalise(schedule, BEFORE), BEFORE, 5)
    assert [format_instant(p.at) for p in found] == case["expect_utc"]
    first = compile_schedule(schedule).first(datetime(2030, 1, 1, tzinfo=UTC))
    assert first is not None
    assert format_instant(first.at) == case["expect_utc"][0]  # also when it is past
