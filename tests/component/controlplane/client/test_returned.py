"""`clockhouse reconciliation`: what came back with a region, listed and downloaded."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from tests.component.controlplane.client.conftest import Server

ENTRY = {
    "region": "east", "epoch": 4, "at": "2026-11-30T06:00:00Z", "kind": "FINISHED", "verb": None,
    "thing": "job", "id": "job_1", "idempotency_key": "job_1:2026-11-30T06:00:00Z",
    "region_policy": "HOME_ASYNC", "state": "SUCCEEDED", "fencing_token": 7,
    "times": {"due_at": "2026-11-30T06:00:00Z", "claimed_at": None, "started_at": None, "finished_at": None},
    "outcome": "REPEATED", "note": None, "settled_at": None,
    "here": {"state": "SUCCEEDED", "fencing_token": 9, "finished_at": "2026-11-30T06:01:00Z"},
}  # fmt: skip


def test_the_report_is_listed_and_downloaded(server: Server, cli: Any, tmp_path: Path) -> None:
    server.script = [(200, {"items": [ENTRY], "next_cursor": None})] * 4
    done = cli("reconciliation", "list", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [ENTRY])
    assert "REPEATED" in cli("reconciliation", "list").stdout
    assert server.received[0].path == "/v1/regions/reconciliation"
    lines = cli("reconciliation", "download")
    assert json.loads(lines.stdout) == ENTRY
    file = tmp_path / "report.csv"
    cli("reconciliation", "download", "--format", "csv", "--file", str(file))
    with file.open(newline="") as opened:
        (row,) = csv.DictReader(opened)
    assert (row["idempotency_key"], row["due_at"], row["here_fencing_token"]) == (
        ENTRY["idempotency_key"],
        "2026-11-30T06:00:00Z",
        "9",
    )
