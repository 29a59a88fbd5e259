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
from tests.inhabited import new_tenant, operator_api
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = pytest.mark.stack


def test_exports_from_the_command_line(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = new_tenant(stack, "exporting", cell=next(iter(stack.info["cells"])))
    monkeypatch.setenv("CLOCKHOUSE_API_URL", stack.info["api_url"])
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", tenant.key)

    def cli(*words: str) -> str:
        ended = CliRunner().invoke(app, ["exports", *words])
        assert ended.exit_code == 0, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def counted() -> bool:
        return bool(tenant.api.get("/v1/usage", by="metric")["items"])

    eventually_sync(counted, timeout=180)  # its own requests, once their minute is sealed
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
            assert rows[0]["metric"] == "api_requests"
    assert made["export_id"] in cli("list")


def test_reports_of_the_history(stack: Stack) -> None:
    for name in ("failed-runs", "busiest-tenants", "bytes-per-tenant"):
        found = operator_api(stack).get(f"/v1/admin/reports/{name}")
        assert found["report"] == name
