"""Exports in the whole product: asked for on the command line, written by Celery, fetched through the
router; and what operators ask of the history."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from billing.exports.focus_rules import faults, parsed
from controlplane.client.cli import app
from tests.api import Api
from tests.inhabited import operator_api
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.stack, pytest.mark.metered]


def test_exports_from_the_command_line(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The demo tenant, which has been at work since the start: a minute of it is sealed by now, mostly.
    api = Api(stack.info["api_url"], stack.info["api_key"])
    monkeypatch.setenv("CLOCKHOUSE_API_URL", stack.info["api_url"])
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", stack.info["api_key"])

    def cli(*words: str) -> str:
        ended = CliRunner().invoke(app, ["exports", *words])
        assert ended.exit_code == 0, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def counted() -> bool:
        metrics = {line["metric"] for line in api.get("/v1/usage", by="metric")["items"]}
        return {"api_requests", "job_runs"} <= metrics

    eventually_sync(counted, timeout=180)
    month = f"{datetime.now(UTC):%Y-%m}"
    for dataset in ("focus", "usage", "invoice-lines"):
        made = json.loads(cli("create", dataset, "--month", month, "--json"))
        assert made["state"] == "DONE", made
        written = json.loads(cli("download", made["export_id"], "-o", str(tmp_path), "--json"))["files"]
        data = Path(written[0])
        with data.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == made["rows_done"]
        if dataset == "focus":
            assert faults([parsed(row) for row in rows], {}) == []
        if dataset == "usage":
            assert {"api_requests", "job_runs"} <= {row["metric"] for row in rows}
    assert made["export_id"] in cli("list")


def test_reports_of_the_history(stack: Stack) -> None:
    for name in ("failed-runs", "busiest-tenants", "bytes-per-tenant"):
        found = operator_api(stack).get(f"/v1/admin/reports/{name}")
        assert found["report"] == name
