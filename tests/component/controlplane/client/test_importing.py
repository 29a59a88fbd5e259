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
    """Import a crontab called web1, with more options; the exit status and the answer."""
    monkeypatch.setenv("CLOCKHOUSE_API_URL", server.url)
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", "ch_live_test")
    file = tmp_path / "web1"

    def run(text: str, *options: str) -> tuple[int, Any]:
        file.write_text(text)
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


def test_without_apply_nothing_is_asked_of_the_server(server: Server, jobs: Jobs, run: Any) -> None:
    status, answer = run(TWO, "--prune")
    assert (status, answer["applied"], answer["left_behind"]) == (0, None, None)
    assert server.received == []


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


def test_left_behind_walks_every_page(client: Clockhouse, jobs: Jobs) -> None:
    for number in range(3):
        jobs.add(f"eventbridge:default:{number}", tags=["eventbridge"])
    plan = Plan(jobs=[PlannedJob(source="1", key="eventbridge:default:1", body={})], refused=[])
    left = left_behind(client, plan, tag="eventbridge", prefix="eventbridge:")
    assert [job.key for job in left] == ["eventbridge:default:0", "eventbridge:default:2"]
