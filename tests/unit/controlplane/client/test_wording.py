"""Times and durations for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import typer
from typer.testing import CliRunner

from controlplane.client.cli import app
from controlplane.client.cli.reading import schedule_of, seconds_of
from controlplane.client.cli.session import AWAY, EXIT_STATUSES, INTERRUPTED, Wrong
from controlplane.client.cli.wording import counted, duration, moment, relative, schedule_text

NOW = datetime(2026, 9, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"), (0.4, "now"), (1, "in 1 s"), (-59, "59 s ago"), (60, "in 1 min"), (3599, "in 59 min"),
        (-7200, "2 h ago"), (86_400 * 3, "in 3 d"), (-86_400 * 800, "2 y ago"),
    ],
)  # fmt: skip
def test_relative(seconds: float, text: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == text


def test_moments_are_local_and_say_their_offset() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert moment(NOW + timedelta(minutes=5), NOW, berlin) == "14:05:00+02:00 (in 5 min)"
    assert moment(NOW + timedelta(hours=20), NOW, berlin) == "2026-09-29 10:00+02:00 (in 20 h)"
    assert moment(NOW, NOW, UTC) == "12:00:00Z (now)"
    newfoundland = ZoneInfo("America/St_Johns")
    assert moment(NOW, NOW, newfoundland) == "09:30:00-02:30 (now)"
    assert moment(None, NOW) == "–"


def test_durations_and_schedules() -> None:
    assert [duration(ms) for ms in (None, 0, 999, 1500, 125_000)] == [
        "–",
        "0 ms",
        "999 ms",
        "1.5 s",
        "2 min 5 s",
    ]
    assert schedule_text({"type": "RATE", "every_seconds": 5400}) == "every 90 min"
    assert schedule_text({"type": "CRON", "cron": "0 8 * * *", "time_zone": "UTC"}) == "0 8 * * * UTC"
    assert schedule_text({"type": "NOW"}) == "now"
    assert (counted(1, "entry", "entries"), counted(2, "entry", "entries")) == ("1 entry", "2 entries")


def test_periods() -> None:
    assert [seconds_of(text) for text in ("90", "90s", "15m", "2h", "1d")] == [90, 90, 900, 7200, 86_400]
    for text in ("", "h", "1w", "-5s", "1.5h"):
        with pytest.raises(Wrong, match="no duration"):
            seconds_of(text)


def test_a_schedule_from_options() -> None:
    empty = {"cron": None, "once": None, "every": None, "now": False, "time_zone": None}
    assert schedule_of(**empty) is None  # type: ignore[arg-type]
    assert schedule_of(**{**empty, "every": "5m"}) == {"type": "RATE", "every_seconds": 300}  # type: ignore[arg-type]
    with pytest.raises(Wrong, match="--cron and --now"):
        schedule_of(**{**empty, "cron": "* * * * *", "now": True})  # type: ignore[arg-type]
    with pytest.raises(Wrong, match="go with a schedule"):
        schedule_of(**{**empty, "time_zone": "UTC"})  # type: ignore[arg-type]


def test_exit_statuses_are_said_once_for_all_commands() -> None:
    told = re.findall(r"^(\d+) ", EXIT_STATUSES, re.MULTILINE)
    readme = (Path(__file__).resolve().parents[4] / "controlplane/client/cli/README.md").read_text()
    assert told == re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)
    assert told == [*map(str, range(AWAY + 1)), str(INTERRUPTED)]
    shown = CliRunner().invoke(app, ["import", "crontab", "--help"]).stdout
    assert "Exit status 1" in " ".join(shown.split())


def test_each_argument_and_option_is_explained() -> None:
    unsaid = []

    def walk(command: Any, name: str) -> None:
        for inner, each in sorted(getattr(command, "commands", {}).items()):
            walk(each, f"{name} {inner}")
        unsaid.extend(f"{name} {p.name}" for p in command.params if not getattr(p, "help", None))

    walk(typer.main.get_command(app), "clockhouse")
    assert unsaid == []
