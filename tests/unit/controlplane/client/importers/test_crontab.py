"""Crontabs become jobs that fire when cron would, or are refused with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.client.importers.crontab import read_crontab
from controlplane.client.importers.plan import CannotImport, Destination, Plan
from tests.unit.controlplane.client.importers import expressions, oracle, ours

TO = Destination(target_id="tgt_cron", path="/cron/{slug}")


def read(text: str, **options: Any) -> Plan:
    return read_crontab(text, **{"name": "web1", "destination": TO, "time_zone": "Europe/Berlin", **options})


def test_a_users_crontab() -> None:
    plan = read(
        """
# m h  dom mon dow   command
SHELL=/bin/bash
PATH = "/usr/bin:/bin"
MAILTO=ops@example.com
0 3 * * *   /usr/local/bin/backup --all "x=1"
*/15 8-18 * * mon-fri  sync.sh
MAILTO=""
CRON_TZ=America/New_York
-@daily\treport 20\\%%line one%line two
"""
    )
    assert plan.refused == ()
    backup, sync, report = plan.jobs
    assert backup.body == {
        "name": "backup",
        "schedule": {
            "type": "CRON", "cron": "0 3 * * *", "time_zone": "Europe/Berlin",
            "dst": {"gap": "SHIFT", "overlap": "FIRST"},
        },
        "target": {"type": "HTTP", "target_id": "tgt_cron", "path": "/cron/backup"},
        "payload": {
            "command": '/usr/local/bin/backup --all "x=1"',
            "environment": {"SHELL": "/bin/bash", "PATH": "/usr/bin:/bin"},
        },
        "dispatch_window_seconds": 60,
    }  # fmt: skip
    assert "mail" in {d.about for d in backup.differences}
    assert sync.body["schedule"]["cron"] == "*/15 8-18 * * mon-fri"
    assert sync.body["schedule"]["dst"] == {"gap": "SKIP", "overlap": "BOTH"}
    assert report.body["schedule"]["cron"] == "0 0 * * *"
    assert report.body["schedule"]["time_zone"] == "America/New_York"
    assert report.body["payload"]["command"] == "report 20%"
    assert report.body["payload"]["stdin"] == "line one\nline two\n"
    assert "mail" not in {d.about for d in report.differences}
    assert [d.about for d in plan.differences] == ["target", "misfire", "retry"]


def test_a_systems_crontab_names_users() -> None:
    plan = read("17 * * * * root cd / && run-parts /etc/cron.hourly\n@weekly app clean\n", system=True)
    assert [job.body["payload"]["user"] for job in plan.jobs] == ["root", "app"]
    assert [job.body["payload"]["command"] for job in plan.jobs] == [
        "cd / && run-parts /etc/cron.hourly",
        "clean",
    ]
    assert [job.source for job in plan.jobs] == ["line 1", "line 2"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@reboot start", "@reboot is no time"),
        ("@fortnightly x", "@fortnightly is not known"),
        ("0~59 * * * * x", "picks a random time"),
        ("5/15 * * * * x", "minute: `5/15`: a step needs a range"),
        ("61 * * * * x", "minute: 61 is not in 0-59"),
        ("0 22-2 * * * x", "hour: `22-2` runs backwards"),
        ("0 0 * * fri-mon x", "day of week: `fri-mon` runs backwards"),
        ("*/0 * * * * x", "minute: `*/0` has no number above 0"),
        ("0 0 ? * * x", "Quartz or EventBridge syntax"),
        ("0 0 * * 5#2 x", "Quartz or EventBridge syntax"),
        ("0 0 L * * x", "day of month: `l` is not understood"),
        ("1,,2 * * * * x", "minute: `` is not understood"),
        ("0 0 30 2 * x", "none of its months has such a day"),
        ("0 0 * *", "a schedule and a command are expected"),
        ("* * * * *", "a schedule and a command are expected"),
        ("CRON_TZ=Mars/Phobos", "'Mars/Phobos' is not a time zone"),
    ],
)
def test_what_cannot_be_said_is_refused(line: str, reason: str) -> None:
    plan = read(f"# first\n{line}\n0 1 * * * good\n")
    (refused,) = plan.refused
    assert (refused.source, refused.text) == ("line 2", line)
    assert reason in refused.reason
    assert [job.body["payload"]["command"] for job in plan.jobs] == ["good"]


def test_a_zone_is_never_guessed() -> None:
    plan = read("0 1 * * * a\nCRON_TZ=UTC\n0 2 * * * b\nCRON_TZ=\n0 3 * * * c\n", time_zone=None)
    assert [job.body["payload"]["command"] for job in plan.jobs] == ["b"]
    assert [refused.source for refused in plan.refused] == ["line 1", "line 5"]
    assert "time zone is not known" in plan.refused[0].reason
    with pytest.raises(CannotImport, match="Nowhere"):
        read("0 1 * * * a", time_zone="Nowhere")


def test_tz_is_the_commands_and_random_delay_is_the_window() -> None:
    plan = read("TZ=Asia/Tokyo\nRANDOM_DELAY=6\n0 1 * * * a\n")
    (job,) = plan.jobs
    assert job.body["schedule"]["time_zone"] == "Europe/Berlin"
    assert job.body["payload"]["environment"] == {"TZ": "Asia/Tokyo"}
    assert job.body["dispatch_window_seconds"] == 360
    assert {"zone", "window"} <= {d.about for d in job.differences}


@pytest.mark.parametrize(
    ("command", "called"),
    [
        ("/usr/bin/backup --password hunter2", "backup"),
        ("PGPASSWORD=hunter2 pg_dump shop > /tmp/x", "pg_dump"),
        ("cd /srv/hunter2 && TOKEN='hunter2' ./run.sh", "run.sh"),
        ("curl -H 'Authorization: Bearer hunter2' https://a:hunter2@example.com", "curl"),
        ("python3 /opt/jobs/report.py hunter2", "python3 report.py"),
        ("[ -f /hunter2 ] && sudo -u hunter2 x", "sudo"),
        ("$(cat /hunter2)", "command"),
        ("cd /hunter2", "command"),
    ],
)
def test_nothing_but_the_program_is_in_names(command: str, called: str) -> None:
    (job,) = read(f"0 1 * * * {command}\n").jobs
    assert job.body["name"] == called
    assert job.body["payload"] == {"command": command}
    seen = {name: value for name, value in job.body.items() if name != "payload"}
    assert "hunter2" not in f"{seen} {job.key}"


def test_keys_stay_where_lines_move_and_schedules_change() -> None:
    first = read("0 1 * * * a\n0 2 * * * a\n0 3 * * * b\n")
    again = read("# new\n\n5 1 * * * a\n5 2 * * * a\n5 3 * * * b\n")
    assert [job.key for job in first.jobs] == [job.key for job in again.jobs]
    assert len({job.key for job in first.jobs}) == 3
    assert first.jobs[1].key == first.jobs[0].key + "-2"
    other = read("0 1 * * * a\n", name="web2")
    assert other.jobs[0].key != first.jobs[0].key


def test_settings_of_the_destination() -> None:
    to = Destination(
        target_id="tgt_x", path="/{name}/{user}/{slug}", tags=("t",), max_attempts=1, window_seconds=30,
        misfire_policy="SKIP",
    )  # fmt: skip
    (job,) = read("0 1 * * * we/ird us er", system=True, destination=to).jobs
    assert job.body["target"]["path"] == "/web1/we%2Fird/us"
    assert (job.body["retry_policy"], job.body["misfire_policy"]) == ({"max_attempts": 1}, "SKIP")
    assert (job.body["tags"], job.body["dispatch_window_seconds"]) == (["t"], 30)
    with pytest.raises(CannotImport, match=r"may hold \{slug\}, \{user\}, \{name\}"):
        read("0 1 * * * a", destination=Destination(target_id="t", path="/{line}"))


def translated(expression: str, zone: str) -> Plan:
    return read_crontab(f"{expression} command", name="n", destination=TO, time_zone=zone)


@settings(max_examples=80, deadline=None)
@given(
    expression=expressions.unix(),
    zone=st.sampled_from(["UTC", "Asia/Kolkata", "Asia/Tokyo", "America/Phoenix"]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2032, 1, 1)),  # noqa: DTZ001
)
def test_a_translated_line_fires_when_cron_would(expression: str, zone: str, start: datetime) -> None:
    after = start.replace(tzinfo=UTC, second=0, microsecond=0)
    plan = translated(expression, zone)
    expected = oracle.fires(expression, dialect="unix", zone=zone, start=after, days=800, most=40)
    if not plan.jobs:
        assert expected == [], plan.refused
        return
    got = ours.fires(plan.jobs[0].body["schedule"], start=after, until=after + timedelta(days=798), most=40)
    assert got == [at for at in expected if at < after + timedelta(days=798)]


@settings(max_examples=30, deadline=None)
@given(expression=expressions.unix(), day=st.integers(0, 40))
def test_also_in_a_zone_with_summer_time_away_from_its_changes(expression: str, day: int) -> None:
    after = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=day)
    until = datetime(2026, 9, 30, tzinfo=UTC)
    plan = translated(expression, "Europe/Berlin")
    expected = oracle.fires(expression, dialect="unix", zone="Europe/Berlin", start=after, days=160, most=40)
    got = ours.fires(plan.jobs[0].body["schedule"], start=after, until=until, most=40) if plan.jobs else []
    assert got == [at for at in expected if at < until]


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        # cronie in Berlin: on 29 March 02:00 becomes 03:00, on 25 October 03:00 becomes 02:00.
        ("30 2 * * *", ["01:00"], ["00:30"]),  # fixed: caught up right after the jump; once
        ("*/30 2 * * *", [], ["00:00", "00:30", "01:00", "01:30"]),  # wildcard minutes: not; twice
        ("0 * * * *", ["00:00", "01:00", "02:00"], ["00:00", "01:00", "02:00"]),  # every real hour
    ],
)
def test_clock_changes_are_crons(expression: str, spring: list[str], autumn: list[str]) -> None:
    schedule = translated(expression, "Europe/Berlin").jobs[0].body["schedule"]
    for day, hours in ((29, spring), (25, autumn)):
        start = datetime(2026, 3 if day == 29 else 10, day, tzinfo=UTC) - timedelta(seconds=1)
        got = ours.fires(schedule, start=start, until=start + timedelta(hours=2, seconds=2), most=10)
        assert [f"{at:%H:%M}" for at in got] == hours
