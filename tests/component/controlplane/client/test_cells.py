"""Cells on the command line: what is sent, what is shown, what is asked first, what a second run does."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.component.controlplane.client.conftest import Server

SITE = {
    "region": "here", "primary": True, "url": "http://127.0.0.1:8101", "database": "db:5432/c1",
    "valkey": "vk:6379/0", "ready_at": None, "status": None, "status_at": None, "status_error": "",
}  # fmt: skip
CELL: dict[str, Any] = {
    "name": "c1", "region": "here", "kind": "SHARED", "state": "CORDONED", "capacity_runs_per_second": 5000,
    "promised_runs_per_second": 120, "tenants": 2, "url": "http://127.0.0.1:8101", "ownership_epoch": 3,
    "status_at": None, "status_error": "", "sites": [SITE], "relocation": None,
}  # fmt: skip
RELOCATION: dict[str, Any] = {
    "relocation_id": "rel_1", "cell": "c1", "kind": "DRAIN", "state": "RUNNING", "at_once": 2,
    "why": "1 of 2 moved", "progress": {"total": 2, "moved": 1, "moving": 1, "left": 0, "stuck": 0},
    "stuck": {"tnt_9": "fits nowhere"}, "created_at": "2026-11-30T00:00:00Z", "finished_at": None,
}  # fmt: skip
STEP = {
    "tenant_id": "tnt_1", "job_runs_per_second": 100, "source": "c1", "destination": "c2", "why": "most room",
}  # fmt: skip
PLAN = {"steps": [STEP], "nowhere": 0, "refusal": None}
ADD = (
    "cell", "add", "c1", "--region", "here", "--url", "http://127.0.0.1:8101",
    "--database-url", "postgresql://u:secret@db/c1", "--valkey-url", "redis://vk/0",
)  # fmt: skip


def _added(**changes: Any) -> dict[str, Any]:
    return {"cell": CELL, "made": True, "applied": ["0001_cell.sql"], "warnings": ["fsync is off"], **changes}


def test_a_cell_is_added_and_a_second_run_goes_on_with_its_key(
    server: Server, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waits = {"ready": False, "waits_for": ["it does not answer"]}
    server.script = [_added(), waits, CELL]
    first = cli(*ADD, "--wait", "0")
    assert first.exit_code == 1  # it does not work yet
    assert "waits: it does not answer" in first.stderr
    assert "fsync is off" in first.stderr
    file = tmp_path / "c1.env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = file.read_text()
    sent = server.received[0].body
    assert f"CELL_KEYS=c1:{sent['key_hex']}" in written
    assert "CELL_BIND=127.0.0.1:8101" in written
    assert "CELL_DATABASE_URL='postgresql://u:secret@db/c1'" in written
    assert (sent["kind"], len(sent["key_hex"])) == ("SHARED", 64)
    server.script = [_added(made=False, applied=[]), {"ready": True, "waits_for": []}, CELL]
    again = cli(*ADD, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["ready"] is True
    assert server.received[3].body["key_hex"] == sent["key_hex"]
    assert file.read_text() == written
    # An address that was wrong is put right; what somebody has added stays.
    file.write_text(written.replace("#CELL_INSTALLATION_KEY=", "CELL_INSTALLATION_KEY=11"))
    server.script = [_added(made=False, applied=[]), {"ready": True, "waits_for": []}, CELL]
    moved = [argument.replace("@db/", "@other/") for argument in ADD]
    assert cli(*moved).exit_code == 0
    put_right = file.read_text()
    assert "CELL_DATABASE_URL='postgresql://u:secret@other/c1'" in put_right
    assert "CELL_INSTALLATION_KEY=11" in put_right
    assert f"CELL_KEYS=c1:{sent['key_hex']}" in put_right
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("something else")
    other = cli(*ADD)
    assert other.exit_code == 2
    assert "holds no CELL_KEYS" in other.stderr


def test_every_fault_is_shown(server: Server, cli: Any, tmp_path: Path) -> None:
    problem = {
        "type": "urn:clockhouse:problem:invalid", "title": "Invalid", "status": 422, "code": "INVALID",
        "detail": "2 faults",
        "errors": [{"pointer": "/database_url", "detail": "is PostgreSQL 16"},
                   {"pointer": "/valkey_url", "detail": "cannot be used"}],
    }  # fmt: skip
    server.script = [(422, problem)]
    refused = cli(*ADD, "--env-file", str(tmp_path / "x.env"))
    assert refused.exit_code == 6
    assert "is PostgreSQL 16" in refused.stderr
    assert "cannot be used" in refused.stderr


def test_cells_are_listed_shown_and_checked(server: Server, cli: Any) -> None:
    page = {"items": [CELL], "next_cursor": None}
    server.script = [page, page, CELL, {"ready": True, "waits_for": []}]
    assert "120/s" in cli("cell", "list", "--state", "OPEN").stdout
    assert json.loads(cli("cell", "list", "--json").stdout) == [CELL]
    assert "db:5432/c1" in cli("cell", "show", "c1").stdout
    assert "c1 works." in cli("cell", "check", "c1").stdout
    server.script = [{"ready": False, "waits_for": ["its Valkey does not answer"]}]
    waiting = cli("cell", "check", "c1")
    assert (waiting.exit_code, "its Valkey does not answer" in waiting.stdout) == (1, True)


def test_a_drain_says_the_numbers_and_is_followed(server: Server, cli: Any) -> None:
    draining = {**CELL, "state": "DRAINING", "relocation": RELOCATION}
    done = {**RELOCATION, "state": "DONE", "why": "c1 is empty", "finished_at": "2026-11-30T00:05:00Z"}
    server.script = [PLAN]
    asked = cli("cell", "drain", "c1")
    assert asked.exit_code == 2
    assert "1 tenants with 100 runs/s promised move away." in asked.stderr
    server.script = [PLAN, draining, RELOCATION, done]
    followed = cli("cell", "drain", "c1", "--yes", "--at-once", "2", "--watch")
    assert followed.exit_code == 0
    assert "RUNNING: 1 of 2 moved" in followed.stderr
    assert server.received[2].path == "/v1/admin/cells/c1:drain"
    assert server.received[2].body == {"at_once": 2}
    server.script = [{**RELOCATION, "state": "STOPPED", "finished_at": "2026-11-30T00:05:00Z"}]
    assert cli("cell", "watch", "rel_1").exit_code == 1
    for verb in ("pause", "resume", "stop"):
        server.script = [RELOCATION]
        assert "cannot move: tnt_9" in cli("cell", verb, "rel_1").stdout
        assert server.received[-1].path == f"/v1/admin/relocations/rel_1:{verb}"


def test_the_map_the_owners_and_suggestions(server: Server, cli: Any) -> None:
    mapped = {
        "name": "c1", "kind": "SHARED", "state": "OPEN", "capacity": 5000, "may_promise": 20000,
        "promised": 120, "room": 19880, "tenants": 2, "used": None, "lag_ms": 7, "sites": [SITE],
        "relocation": None,
    }  # fmt: skip
    region = {"region": "here", "label": "", "n_plus_one": None, "sentence": "one cell", "cells": [mapped]}
    server.script = [(201, {"name": "there", "label": "", "created_at": "2026-11-30T00:00:00Z"})]
    assert "cell add --region there" in cli("topology", "add-region", "there").stdout
    server.script = [{"regions": [region]}]
    shown = cli("topology", "show").stdout
    assert "120 of 20,000/s" in shown
    assert "not known" in shown
    suggestion = {
        "tenant_id": "tnt_1", "slug": "busy", "source": "c1", "destination": "c2",
        "used_runs_per_second": 35.0, "why": "c1 runs at 65%",
    }  # fmt: skip
    server.script = [{"items": [suggestion]}]
    assert "c1 runs at 65%" in cli("topology", "suggest").stdout
    server.script = [{"items": [suggestion]}]
    assert "no move of nobody is suggested" in cli("topology", "suggest", "--begin", "nobody", "--yes").stderr
    owned = {
        "cell": "c1", "region": "here", "owner_region": "here", "epoch": 3, "renewals": 0, "promotions": 0,
        "recorded_epoch": 4, "tenants": 2, "agreed": False, "drift": ["the store says epoch 3"],
        "differences": [], "more_differences": 0, "away": "",
    }  # fmt: skip
    server.script = [{"items": [owned]}]
    drift = cli("topology", "ownership")
    assert drift.exit_code == 1
    assert "the store says epoch 3" in drift.stdout


def test_quotas_and_delays(server: Server, cli: Any) -> None:
    use = {
        "name": "pending_timers", "quota": 1000, "used": 1001, "at_least": True, "share": 100.0,
        "measured": "now", "unknown_since": None, "over": "REFUSED", "over_means": "new jobs are refused",
        "enforced_by": "the cell",
    }  # fmt: skip
    server.script = [{"items": [use], "unknown": None}]
    shown = cli("quotas").stdout
    assert "1,001 or more" in shown
    assert "refused: new jobs are refused" in shown
    delays = {
        "since": "2026-11-29T00:00:00Z", "until": "2026-11-30T00:00:00Z", "runs": 10, "complete": True,
        "waited_ms": 1000, "mean_ms": 100.0, "crowded_minutes": [], "sentence": "10 runs waited 100 ms.",
        "parts": [{"part": "others", "ms": 1000, "mean_ms": 100.0, "share": 100.0}], "method": "",
    }  # fmt: skip
    server.script = [delays]
    told = cli("delays", "--hours", "2").stdout
    assert "other tenants of the cell" in told
    assert "10 runs waited 100 ms." in told
