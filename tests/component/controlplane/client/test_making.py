"""`clockhouse jobs create`: options, files, and what they make together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.component.controlplane.client.conftest import Server

JOB = {"job_id": "job_1", "status": "SCHEDULED", "version": 1, "schedule": {"type": "NOW"},
       "target": {"type": "HTTP", "target_id": "tgt_x", "path": "", "method": "POST"}}  # fmt: skip


def test_every_part_of_a_job_has_an_option(server: Server, cli: Any) -> None:
    server.script = [(201, JOB)]
    done = cli(
        "jobs", "create", "--cron", "0 6 ? * 2-6 *", "--dialect", "eventbridge", "--calendar", "cal_de",
        "--roll", "next", "-t", "tgt_x", "--overlap", "skip", "--delivery", "at_most_once",
        "--region-policy", "single_region", "--concurrency-key", "load", "--max-concurrent", "2",
        "--on-success", "none", "--on-failure", "tgt_pager/ended", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (request,) = server.received
    assert request.body == {
        "schedule": {
            "type": "CRON", "cron": "0 6 ? * 2-6 *", "dialect": "EVENTBRIDGE", "time_zone": "UTC",
            "calendar": "cal_de", "roll": "NEXT",
        },
        "target": {"target_id": "tgt_x"},
        "overlap_policy": "SKIP", "delivery": "AT_MOST_ONCE", "region_policy": "SINGLE_REGION",
        "concurrency_key": "load", "max_concurrent": 2,
        "on_success": None, "on_failure": {"target_id": "tgt_pager", "path": "/ended"},
    }  # fmt: skip
    astray = cli("jobs", "create", "--now", "-t", "tgt_x", "--calendar", "cal_de")
    assert (astray.exit_code, "--calendar goes with --cron" in astray.stderr) == (2, True)


@pytest.mark.parametrize(
    ("filed", "options", "sent"),
    [
        (
            {"task_queue": "ledger", "type": "TASK_QUEUE", "lease_seconds": 600}, ["--queue", "other"],
            {"task_queue": "other", "type": "TASK_QUEUE", "lease_seconds": 600},
        ),
        (
            {"task_queue": "ledger", "type": "TASK_QUEUE"}, ["--lease", "60"],
            {"task_queue": "ledger", "type": "TASK_QUEUE", "lease_seconds": 60},
        ),
        (
            {"target_id": "tgt_a", "path": "/a", "method": "PUT"}, ["--path", "/b"],
            {"target_id": "tgt_a", "path": "/b", "method": "PUT"},
        ),
        (
            {"target_id": "tgt_a", "path": "/a", "method": "PUT"}, ["--url", "https://x/y"],
            {"url": "https://x/y", "method": "PUT"},
        ),
    ],
)  # fmt: skip
def test_options_go_over_what_a_file_says_of_the_target(
    server: Server, cli: Any, tmp_path: Path, filed: Any, options: list[str], sent: Any
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"schedule": {"type": "NOW"}, "target": filed}))
    server.script = [(201, JOB)]
    done = cli("jobs", "create", "-f", str(file), *options, "--json")
    assert done.exit_code == 0, done.output
    assert server.received[0].body["target"] == sent


def test_a_files_target_is_not_dropped_for_another_kind(server: Server, cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    for filed, options in (({"target_id": "tgt_a"}, ["-q", "x"]), ({"task_queue": "q"}, ["-t", "tgt_a"])):
        file.write_text(json.dumps({"schedule": {"type": "NOW"}, "target": filed}))
        done = cli("jobs", "create", "-f", str(file), *options)
        assert (done.exit_code, "take its `target` out" in " ".join(done.stderr.split())) == (2, True)
    assert server.received == []


def test_a_drill_is_an_option_of_a_target(server: Server, cli: Any) -> None:
    target = {"target_id": "tgt_x", "state": "APPROVED", "version": 2, "base_url": "https://x",
              "drill": {"duplicate_percent": 5}}  # fmt: skip
    server.handler = lambda request: target
    shown = cli("targets", "edit", "tgt_x", "--drill", "5", "--latency-slo-ms", "300")
    assert "5 % of calls" in shown.stdout
    assert cli("targets", "edit", "tgt_x", "--drill", "0", "--json").exit_code == 0
    cli("targets", "register", "https://x", "--drill", "10", "--json")
    assert [request.body for request in server.received] == [
        {"latency_slo_ms": 300, "drill": {"duplicate_percent": 5}},
        {"drill": None},
        {"base_url": "https://x", "drill": {"duplicate_percent": 10}},
    ]
    assert cli("targets", "edit", "tgt_x").exit_code == 2
