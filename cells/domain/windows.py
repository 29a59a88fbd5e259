"""Dispatch windows: how late a job may be started on purpose, so that load spreads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from cells.domain.faults import ScheduleError
from cells.domain.job import Schedule, ScheduleType
from cells.domain.schedule import compile_schedule

MAX_WINDOW_SECONDS = 7 * 86_400


class WindowDefaults(Protocol):
    """A tenant's windows, in seconds (`ports.TenantConfig` has them)."""

    @property
    def default_window_seconds(self) -> int: ...  # recurring jobs
    @property
    def default_once_window_seconds(self) -> int: ...


def window_for(schedule: Schedule, requested_seconds: int | None, config: WindowDefaults) -> int:
    """The window of a job in milliseconds.

    What was asked for, or the tenant's default; always shorter than the schedule's own period,
    so that an occurrence never waits past the next one. NOW is undelayed: 0. On a schedule, 0
    asked for means strict. Raises `ScheduleError`.
    """
    if requested_seconds is not None and not 0 <= requested_seconds <= MAX_WINDOW_SECONDS:
        raise ScheduleError("/dispatch_window_seconds", f"must lie between 0 and {MAX_WINDOW_SECONDS}")
    if schedule.type is ScheduleType.NOW:
        return 0
    if requested_seconds is None:
        once = schedule.type is ScheduleType.ONCE
        requested_seconds = config.default_once_window_seconds if once else config.default_window_seconds
    window_ms = min(requested_seconds, MAX_WINDOW_SECONDS) * 1000
    period = compile_schedule(schedule).period_seconds()
    return window_ms if period is None else min(window_ms, period * 1000 - 1)


def due_at(next_run_at: datetime, offset_ms: int) -> datetime:
    """When a job's timer ends: never before its scheduled instant."""
    return next_run_at + timedelta(milliseconds=offset_ms)
