"""Waiting of services."""

from __future__ import annotations

import asyncio

import pytest

from cells.clock import SystemClock
from cells.timers.pacing import Alarm, Backoff, stopped_within
from tests.waiting import eventually


async def test_an_alarm_is_never_early() -> None:
    clock = SystemClock()
    alarm = Alarm(clock)
    for ahead in (0, 1, 2, 7, 13):
        due = clock.now_ms() + ahead
        await alarm.sleep_until(due)
        assert clock.now_ms() >= due


async def test_ringing_brings_it_forward() -> None:
    clock = SystemClock()
    alarm = Alarm(clock)
    sleep = asyncio.create_task(alarm.sleep_until(clock.now_ms() + 60_000))
    await asyncio.sleep(0)
    due = clock.now_ms() + 20
    alarm.ring(due + 30_000)
    alarm.ring(due)
    alarm.ring(due + 40_000)
    await asyncio.wait_for(sleep, 5)
    assert clock.now_ms() >= due


async def test_a_ring_while_nobody_sleeps_counts_for_the_next_sleep_only() -> None:
    clock = SystemClock()
    alarm = Alarm(clock)
    alarm.ring()
    await asyncio.wait_for(alarm.sleep_until(clock.now_ms() + 60_000), 5)
    again = asyncio.create_task(alarm.sleep_until(clock.now_ms() + 60_000))
    await asyncio.sleep(0)
    assert not again.done()
    alarm.ring()
    await eventually(again.done)


def test_backoff_grows_to_a_second_and_starts_anew() -> None:
    backoff = Backoff()
    assert [backoff.failed() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.succeeded()
    assert backoff.failed() == 0.05


@pytest.mark.parametrize("is_set", [True, False])
async def test_stopped_within(is_set: bool) -> None:
    stop = asyncio.Event()
    if is_set:
        stop.set()
    assert await stopped_within(stop, 0.001) is is_set
