"""`clockhouse import … --apply`: what is sent, and what becomes of jobs that the source lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controlplane.client.cli import app
from controlplane.client.importers.applying import left_behind
from controlplane.client.importers.plan import Plan, PlannedJob
from controlplane.client.sync import Clockhouse
from tests.component.controlplane.client.conftest import Received, Server

TWO = "0 1 * * * backup --password hunter2\n0 2 * * * digest\n"


class Jobs:
    """Jobs by key, as the API keeps them; lists have one job on a page."""

    def __init__(self) -> None:
        self.refuses = ""  # keys that hold this
        self.jobs: dict[str, dict[str, Any]] = {}
        self.cancelled: list[str] = []

    def add(self, key: str, *, tags: list[str], status: str = "SCHEDULED") -> str:
        number = len(self.jobs) + 1
        self.jobs[key] = {
            "job_id": f"job_{number}", "status": status, "version": 1, "key": key, "name": key, "tags": tags,
            "schedule": {"type": "CRON", "cron": "0 1 * * *", "time_zone": "UTC"},
            "target": {"type": "HTTP", "target_id": "tgt_x", "path": "/", "method": "POST"},
            "next_run_at": None, "next_run_local": None, "due_at": None, "dispatch_window_seconds": 1,
            "misfire_policy": None, "misfire_grace_seconds": None, "region_policy": None,
            "created_at": None, "updated_at": None,
        }  # fmt: skip
        return f"job_{number}"

    def __call__(self, request: Received) -> Any:
        if request.method == "PUT":
            key = request.path.rpartition("/")[2].replace("%3A", ":")
            if self.refuses and self.refuses in key:
                return 409, {"code": "NO_MORE_JOBS", "detail": "No more."}
            if key in self.jobs:
                return 200, {**self.jobs[key], "changed": False}
            status = "PAUSED" if request.body.get("paused") else "SCHEDULED"
            self.add(key, tags=request.body["tags"], status=status)
            return 201, self.jobs[key]
        if request.method == "DELETE":
            job_id = request.path.rpartition("/")[2]
            self.cancelled.append(job_id)
            return {"job_id": job_id, "status": "CANCELLED"}
        assert (request.method, request.path) == ("GET", "/v1/jobs")
        found = [
            job
            for job in self.jobs.values()
            if request.query["tag"] in job["tags"] and job["status"] == request.query["state"]
        ]
        at = int(request.query.get("cursor", 0))
        return {
            "items": found[at : at + 1],
            "next_cursor": str(at + 1) if at + 1 < len(found) else None,
        }


@pytest.fixture
def jobs(server: Server) -> Jobs:
    jobs = Jobs()
    server.handler = jobs
    return jobs


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a crontab called web1, with more options; the exit status and the answer. `--prune` is
    answered with yes and goes with the name."""
    monkeypatch.setenv("CLOCKHOUSE_API_URL", server.url)
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", "ch_live_test")
    file = tmp_path / "web1"

    def run(text: str, *options: str) -> tuple[int, Any]:
        file.write_text(text)
        if "--prune" in options:
            options = (*options, "--name", "web1", "--yes")
        done = CliRunner().invoke(
            app, ["import", "crontab", str(file), "-t", "tgt_x", "--user", "-z", "UTC", "--json", *options]
        )
        return done.exit_code, json.loads(done.stdout)

    return run


def test_paused_jobs_are_created_so_in_one_request(server: Server, jobs: Jobs, run: Any) -> None:
    status, answer = run(TWO, "--apply", "--paused")
    assert (status, [job["outcome"] for job in answer["applied"]]) == (0, ["created", "created"])
    assert [job["paused"] for job in answer["applied"]] == [True, True]
    assert [request.body["paused"] for request in server.received if request.method == "PUT"] == [True, True]
    assert {request.method for request in server.received} == {"PUT", "GET"}
    assert answer["left_behind"] == []
    assert all("hunter2" not in key for key in jobs.jobs)


def test_without_apply_nothing_is_changed_and_what_would_be_cancelled_is_told(
    server: Server, jobs: Jobs, run: Any
) -> None:
    old = jobs.add("crontab:web1:old-1", tags=["crontab:web1"])
    for options in ((), ("--prune",)):
        status, answer = run(TWO, *options)
        assert (status, answer["applied"]) == (0, None)
        assert [(job["job_id"], job["outcome"]) for job in answer["left_behind"]] == [(old, "scheduled")]
    assert {request.method for request in server.received} == {"GET"}


def test_a_plan_can_be_looked_at_without_an_api(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CLOCKHOUSE_API_URL", "CLOCKHOUSE_API_KEY"):
        monkeypatch.delenv(name)
    status, answer = run(TWO)
    assert (status, len(answer["jobs"]), answer["left_behind"]) == (0, 2, None)


def test_what_the_source_lost_is_told_and_cancelled_only_when_asked(jobs: Jobs, run: Any) -> None:
    run(TWO, "--apply")
    paused = jobs.add("crontab:web1:old-1", tags=["crontab:web1"], status="PAUSED")
    # Another crontab's, somebody's own under the tag, and one that is cancelled already.
    jobs.add("crontab:web2:old-2", tags=["crontab:web1"])
    jobs.add("mine", tags=["crontab:web1"])
    jobs.add("crontab:web1:gone-3", tags=["crontab:web1"], status="CANCELLED")
    lost = [job["job_id"] for key, job in jobs.jobs.items() if "digest" in key]

    shorter = TWO.splitlines(keepends=True)[0]
    status, answer = run(shorter, "--apply")
    assert status == 0
    assert [(job["job_id"], job["outcome"]) for job in answer["left_behind"]] == [
        (lost[0], "scheduled"),
        (paused, "paused"),
    ]
    assert jobs.cancelled == []

    status, answer = run(shorter, "--apply", "--prune")
    assert [job["outcome"] for job in answer["left_behind"]] == ["cancelled", "cancelled"]
    assert jobs.cancelled == [lost[0], paused]


def test_nothing_is_cancelled_where_an_entry_was_refused(jobs: Jobs, run: Any) -> None:
    # The entry that cannot be read any more may be the one whose job seems lost.
    run(TWO, "--apply")
    status, answer = run(TWO.replace("0 2 * * *", "0 2 * * 99"), "--apply", "--prune")
    assert status == 1
    assert [job["outcome"] for job in answer["left_behind"]] == ["scheduled"]
    assert jobs.cancelled == []


def test_nothing_is_cancelled_where_the_server_refused_a_replacement(jobs: Jobs, run: Any) -> None:
    run(TWO, "--apply")
    jobs.refuses = "report"
    status, answer = run(TWO.replace("digest", "report"), "--apply", "--prune")
    assert (status, [job["outcome"] for job in answer["applied"]]) == (1, ["unchanged", "refused"])
    assert [job["outcome"] for job in answer["left_behind"]] == ["scheduled"]
    assert jobs.cancelled == []


def test_an_empty_source_cancels_nothing(jobs: Jobs, run: Any) -> None:
    run(TWO, "--apply")
    status, answer = run("# nothing\n", "--apply", "--prune")
    assert (status, answer["applied"], len(answer["left_behind"])) == (1, [], 2)
    assert jobs.cancelled == []


def test_pruning_a_crontab_needs_its_name(server: Server, run: Any, tmp_path: Path) -> None:
    (tmp_path / "cron").write_text(TWO)
    done = CliRunner().invoke(
        app, ["import", "crontab", str(tmp_path / "cron"), "-t", "tgt_x", "-z", "UTC", "--prune", "--yes"]
    )
    assert (done.exit_code, server.received) == (2, [])
    assert "--name" in done.stderr


def test_pruning_shows_and_asks_before_anything_is_changed(
    server: Server, jobs: Jobs, run: Any, tmp_path: Path
) -> None:
    old = jobs.add("crontab:web1:old-1", tags=["crontab:web1"])
    (tmp_path / "web1").write_text(TWO)
    command = ["import", "crontab", str(tmp_path / "web1"), "-t", "tgt_x", "--user", "-z", "UTC"]
    done = CliRunner().invoke(app, [*command, "--prune", "--name", "web1", "--apply"])
    assert done.exit_code == 2  # there is no terminal to ask
    assert f"crontab:web1:old-1 {old}" in done.stderr
    assert "Cancel 1 job and the runs that wait?" in done.stderr
    assert {request.method for request in server.received} == {"GET"}
    looked = CliRunner().invoke(app, [*command, "--prune", "--name", "web1"])
    assert (looked.exit_code, "1 job (--apply cancels them)" in looked.stdout) == (0, True)


def test_an_export_prunes_within_its_groups(server: Server, jobs: Jobs, run: Any) -> None:
    for key in ("eventbridge:night:old", "eventbridge:day:other", "eventbridge:nightly:other"):
        jobs.add(key, tags=["eventbridge"])
    export = json.dumps({"Name": "new", "GroupName": "night", "ScheduleExpression": "cron(0 6 * * ? *)"})
    done = CliRunner().invoke(
        app, ["import", "eventbridge", "-", "-t", "tgt_x", "--apply", "--prune", "--yes", "--json"],
        input=export,
    )  # fmt: skip
    assert done.exit_code == 0
    assert [job["key"] for job in json.loads(done.stdout)["left_behind"]] == ["eventbridge:night:old"]
    assert jobs.cancelled == ["job_1"]


def test_left_behind_walks_every_page(client: Clockhouse, jobs: Jobs) -> None:
    for number in range(3):
        jobs.add(f"eventbridge:default:{number}", tags=["eventbridge"])
    plan = Plan(
        jobs=[PlannedJob(source="1", key="eventbridge:default:1", body={})],
        refused=[],
        prefixes=["eventbridge:default:"],
    )
    left = left_behind(client, plan, tag="eventbridge")
    assert [job.key for job in left] == ["eventbridge:default:0", "eventbridge:default:2"]
