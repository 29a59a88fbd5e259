"""What moves between two versions of the time-zone data."""

from __future__ import annotations

import importlib.resources
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cells.domain.job import JobDefinition, Schedule, ScheduleType, TargetRef
from cells.scheduling import WaitingJob
from cells.tzguard import compare, find_zones, main

NOW = datetime(2026, 6, 1, tzinfo=UTC)
YEAR = NOW + timedelta(days=366)


def job(schedule: Schedule) -> WaitingJob:
    definition = JobDefinition(schedule=schedule, target=TargetRef(target_id="tgt_x"))
    return WaitingJob(tenant_id=uuid.uuid4(), job_id=uuid.uuid4(), next_run_at=NOW, definition=definition)


def data(folder: Path, name: str, like: str) -> Path:
    """A directory in which a zone is like another one."""
    zones = importlib.resources.files("tzdata") / "zoneinfo"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(zones.joinpath(*like.split("/")).read_bytes())
    return folder


def test_what_moves_and_by_how_much(tmp_path: Path) -> None:
    old, new = find_zones("installed"), find_zones(str(data(tmp_path, "Europe/Berlin", "Europe/London")))
    daily = job(Schedule(type=ScheduleType.CRON, cron="0 12 * * *", time_zone="Europe/Berlin"))
    moved = compare(daily, old, new, NOW, NOW + timedelta(days=10))
    assert moved is not None
    assert (moved.before, moved.after) == (NOW + timedelta(hours=10), NOW + timedelta(hours=11))
    assert moved.count == 10
    assert compare(daily, old, old, NOW, YEAR) is None
    once = job(Schedule(type=ScheduleType.ONCE, run_at="2026-12-24T18:00:00", time_zone="Europe/Berlin"))
    assert compare(once, old, new, NOW, YEAR) is not None
    rate = job(Schedule(type=ScheduleType.RATE, every_seconds=60, start_at="2026-01-01T00:00:00Z"))
    assert compare(rate, old, new, NOW, YEAR) is None


def test_a_wheel_is_read(tmp_path: Path) -> None:
    folder = data(tmp_path / "zones", "Europe/Berlin", "Europe/London")
    wheel = tmp_path / "tzdata-2099.1-py2.py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(folder / "Europe/Berlin", "tzdata/zoneinfo/Europe/Berlin")
    found = find_zones(str(wheel))("Europe/Berlin", "")
    assert NOW.astimezone(found).utcoffset() == timedelta(hours=1)


def test_what_is_no_data_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", "installed", "--to", "/nowhere"]) == 2
    assert "neither a directory of zone files nor a wheel" in capsys.readouterr().err
