"""The command line against the whole product, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controlplane.client.cli import app
from tests.stack import Stack

pytestmark = pytest.mark.stack

ROOT = Path(__file__).resolve().parents[2]


class Cli:
    """`clockhouse` in a process of its own, with the stack's address and key."""

    def __init__(self, stack: Stack, home: Path) -> None:
        self.environment = {
            **os.environ,
            "CLOCKHOUSE_API_URL": stack.info["api_url"],
            "CLOCKHOUSE_API_KEY": stack.info["api_key"],
            "CLOCKHOUSE_CONFIG": str(home / "profiles.toml"),
        }

    def __call__(self, *arguments: str, expect: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "controlplane.client", *arguments],
            cwd=ROOT, env=self.environment, input=stdin, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, expect: int = 0, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--json", expect=expect, stdin=stdin).stdout)


@pytest.fixture
def cli(stack: Stack, tmp_path: Path) -> Cli:
    return Cli(stack, tmp_path)


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_jobs_from_the_command_line(cli: Cli) -> None:
    key = unique("cli")
    job = cli.json(
        "jobs", "create", "--cron", "0 8 * * 1-5", "-z", "Europe/Berlin", "-t", "tgt_echo", "--path", "/cli",
        "-p", '{"a": 1}', "-H", "X-A: b", "--tag", key, "--key", key, "--window", "30",
    )  # fmt: skip
    assert (job["schedule"]["cron"], job["headers"], job["dispatch_window_seconds"]) == (
        "0 8 * * 1-5",
        {"X-A": "b"},
        30,
    )
    assert cli.json("jobs", "edit", key, "--cron", "0 9 * * *", "--priority", "high")["priority"] == "HIGH"
    shown = cli.json("jobs", "get", job["job_id"])
    assert (shown["schedule"]["cron"], shown["schedule"]["time_zone"]) == ("0 9 * * *", "Europe/Berlin")
    run = cli.json("jobs", "trigger", key, "--wait", "-p", '{"b": 2}')
    assert run["state"] == "SUCCEEDED"
    assert cli.json("runs", "wait", run["run_id"])["run_id"] == run["run_id"]
    assert [j["job_id"] for j in cli.json("jobs", "list", "--tag", key)] == [job["job_id"]]
    assert "It ran." in cli("jobs", "occurrences", key, "--next", "2").stdout
    table = cli("jobs", "list", "--tag", key).stdout
    assert job["job_id"] in table
    assert "Europe/Berlin" in table
    assert cli.json("jobs", "pause", key)[0]["status"] == "PAUSED"
    refused = cli("jobs", "cancel", key, expect=2)
    assert "--yes answers" in refused.stderr
    assert cli.json("jobs", "cancel", key, "--yes")[0]["status"] == "CANCELLED"


def test_errors_have_words_faults_and_a_status(cli: Cli) -> None:
    invalid = cli("jobs", "create", "--cron", "61 * * * ?", "-t", "tgt_echo", expect=6)
    assert invalid.stdout == ""
    assert "schedule.cron: minute: 61 is out of range (0-59)" in invalid.stderr
    assert "day-of-week: `?` is Quartz" in invalid.stderr
    assert "no run" not in cli("jobs", "get", "job_01m8nk73myg02t1j0x4m4vwhes", expect=4).stderr
    assert (
        json.loads(cli("jobs", "get", "no-such-key", "--json", expect=4).stderr)["error"]["code"]
        == "NOT_FOUND"
    )
    assert (
        "no target: --target, --url, --queue or --workflow" in cli("jobs", "create", "--now", expect=2).stderr
    )
    assert "No such option" in cli("jobs", "list", "--nonsense", expect=2).stderr
    cli.environment["CLOCKHOUSE_API_KEY"] = "ch_live_nobody"
    assert "clockhouse login" in cli("tenant", expect=3).stderr
    cli.environment["CLOCKHOUSE_API_URL"] = "http://127.0.0.1:9"
    assert "cannot be reached" in cli("tenant", expect=8).stderr


def test_login_keeps_a_profile(cli: Cli, stack: Stack, tmp_path: Path) -> None:
    url, key = cli.environment.pop("CLOCKHOUSE_API_URL"), cli.environment.pop("CLOCKHOUSE_API_KEY")
    assert "clockhouse login" in cli("tenant", expect=2).stderr
    cli("login", "--url", url, "--key-file", "-", stdin="ch_live_wrong\n", expect=3)
    assert not (tmp_path / "profiles.toml").exists()
    assert "Demo" in cli("login", "--url", url, "--key-file", "-", "-P", "mine", stdin=f"{key}\n").stdout
    assert (tmp_path / "profiles.toml").stat().st_mode & 0o777 == 0o600
    assert cli.json("tenant")["slug"] == "demo"
    shown = cli.json("profile", "show")
    assert shown["source"] == "profile mine"
    assert key not in json.dumps(shown)
    assert "no profile other" in cli("tenant", "-P", "other", expect=2).stderr


def test_applying_a_file_twice(cli: Cli, tmp_path: Path) -> None:
    one, two = unique("apply-one"), unique("apply-two")
    file = tmp_path / "jobs.toml"
    file.write_text(
        f"""
[[jobs]]
key = "{one}"
schedule = {{type = "CRON", cron = "0 3 * * *", time_zone = "UTC"}}
target = {{target_id = "tgt_echo"}}
payload = {{a = [1, 2]}}

[[jobs]]
key = "{two}"
schedule = {{type = "ONCE", run_at = 2090-01-01T00:00:00Z}}
target = {{target_id = "tgt_echo"}}
"""
    )
    assert [r["outcome"] for r in cli.json("jobs", "apply", "-f", str(file))] == ["created", "created"]
    assert [r["outcome"] for r in cli.json("jobs", "apply", "-f", str(file))] == ["unchanged", "unchanged"]
    file.write_text(file.read_text().replace("0 3 * * *", "0 99 * * *"))
    refused = cli("jobs", "apply", "-f", str(file), expect=1)
    assert "hour: 99 is out of range" in refused.stderr
    cli("jobs", "cancel", one, two, "--yes")


def test_the_other_commands(cli: Cli, stack: Stack) -> None:
    tested = cli.json("targets", "test", "tgt_echo", "--path", "/hello")
    assert (tested["ok"], tested["status"]) == (True, 200)
    assert cli.json("targets", "test", "tgt_echo", "--path", "/status/500", expect=1)["status"] == 500
    target = cli.json("targets", "register", stack.echo_url, "--id", unique("tgt_cli"), "--approve")
    assert (target["state"], target["secret"][:6]) == ("APPROVED", "whsec_")
    assert target["target_id"] in [t["target_id"] for t in cli.json("targets", "list")]
    assert (
        cli.json("targets", "rotate-secret", target["target_id"], "--overlap", "1h")["secret"]
        != target["secret"]
    )
    key = cli.json("keys", "create", "for tests", "-s", "jobs:read", "--expires-in", "1h")
    assert key["api_key"].startswith("ch_live_")
    assert cli.json("keys", "revoke", key["key_id"], "-y")["state"] == "REVOKED"
    assert cli.json("members", "list")[0]["role"] == "owner"
    assert {"from", "to", "items"} <= cli.json("usage").keys()
    assert cli.json("usage", "--by", "job").keys() >= {"items"}
    assert "total" in cli.json("usage", "--cost")
    assert cli.json("stats", "--last", "15m")["total"]["started"] >= 1
    preview = cli("jobs", "preview", "--cron", "30 2 * * *", "-z", "Europe/Berlin", "-n", "2").stdout
    assert "gap" in preview


def test_dead_letters_are_tried_again(cli: Cli) -> None:
    key = unique("dead")
    cli.json(
        "jobs", "create", "--cron", "0 8 * * *", "-z", "UTC", "-t", "tgt_echo", "--path", "/status/418",
        "--key", key,
    )  # fmt: skip
    run = cli.json("jobs", "trigger", key, "--wait", expect=1)
    assert run["state"] == "FAILED"
    assert run["run_id"] in [letter["run_id"] for letter in cli.json("dlq", "list")["items"]]
    begun = cli.json("dlq", "redrive", run["run_id"], "--yes", "--no-wait")
    assert (begun["action"], begun["total"]) == ("redrive", 1)
    assert begun["redrive_id"] in [one["redrive_id"] for one in cli.json("dlq", "redrives")]


@pytest.mark.parametrize(
    "words", ["jobs list", "runs list", "dlq list", "dlq redrives", "targets list", "keys list",
              "members list", "usage", "usage --cost", "stats", "tenant", "profile show", "--help",
              "jobs create --help"],
)  # fmt: skip
def test_everything_has_a_form_for_people(cli: Cli, words: str) -> None:
    shown = CliRunner().invoke(app, words.split(), env=cli.environment)
    assert (shown.exit_code, shown.exception) == (0, None), shown.output
    assert shown.stdout.strip()


CRONTAB = """
CRON_TZ=Europe/Berlin
30 3 * * 1-5  /usr/bin/backup --all
@reboot  start-me
"""


def test_importing_a_crontab(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / unique("crontab")
    file.write_text(CRONTAB)
    command = ["import", "crontab", str(file), "-t", "tgt_echo", "--user"]
    plan = cli(*command, expect=1)
    assert "@reboot is no time" in plan.stdout
    assert "Nothing was created" in plan.stderr
    assert cli.json("jobs", "list", "--tag", f"crontab:{file.name}") == []
    file.write_text(CRONTAB.replace("@reboot  start-me\n", ""))
    assert [r["outcome"] for r in cli.json(*command, "--apply")["applied"]] == ["created"]
    assert [r["outcome"] for r in cli.json(*command, "--apply")["applied"]] == ["unchanged"]
    (job,) = cli.json("jobs", "list", "--tag", f"crontab:{file.name}")
    assert (job["schedule"]["cron"], job["target"]["path"]) == ("30 3 * * 1-5", "/cron/backup")
    run = cli.json("jobs", "trigger", job["job_id"], "--wait")
    assert '"command":"/usr/bin/backup --all"' in json.loads(run["attempts"][0]["body"])["body"].replace(
        '": "', '":"'
    )
    cli("jobs", "cancel", job["job_id"], "-y")


def test_importing_from_eventbridge(cli: Cli) -> None:
    name = unique("rollup")
    schedules = [
        {"Name": name, "ScheduleExpression": "cron(0 6 ? * 2-6 *)",
         "ScheduleExpressionTimezone": "Europe/Berlin"},
        {"Name": f"{name}-off", "ScheduleExpression": "rate(5 minutes)", "State": "DISABLED",
         "CreationDate": "2026-01-01T00:00:00Z", "Target": {"Arn": "arn:aws:lambda:x", "Input": '{"a": 1}'}},
    ]  # fmt: skip
    command = ["import", "eventbridge", "-", "-t", "tgt_echo", "--apply"]
    first = cli.json(*command, stdin=json.dumps(schedules))
    assert [(r["outcome"], r["paused"]) for r in first["applied"]] == [("created", False), ("created", True)]
    again = cli.json(*command, stdin=json.dumps(schedules))
    assert [(r["outcome"], r["paused"]) for r in again["applied"]] == [
        ("unchanged", False),
        ("unchanged", True),
    ]
    job = cli.json("jobs", "get", f"eventbridge:default:{name}")
    assert (job["schedule"]["cron"], job["schedule"]["dst"]) == (
        "0 6 ? * 2-6 *",
        {"gap": "SKIP", "overlap": "FIRST"},
    )
    assert cli.json("jobs", "get", first["applied"][1]["job_id"])["payload"] == {"a": 1}
    cli("jobs", "cancel", *[r["job_id"] for r in first["applied"]], "-y")
