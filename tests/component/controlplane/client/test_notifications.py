"""Notification rules and whole exports from Python and from a terminal."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from controlplane.client import AsyncClockhouse, Clockhouse
from tests.component.controlplane.client.conftest import QUICK, Received, Server

RULE = {
    "rule_id": "ntr_1", "name": "on call", "enabled": True, "kinds": ["run.dead_lettered"],
    "filters": {"tags": ["prod"]}, "channel": "WEBHOOK", "url": "https://example.com/hook", "emails": [],
    "digest_minutes": 0, "failures": 0, "last_delivered_at": None, "last_error": "", "stopped_because": "",
    "version": 1,
}  # fmt: skip
DELIVERY = {
    "delivery_id": "ntd_1", "rule_id": "ntr_1", "state": "WAITING", "test": True, "kind": "notification.test",
    "events": 1, "attempts": 0, "created_at": "2026-11-30T12:00:00Z", "due_at": "2026-11-30T12:00:00Z",
    "delivered_at": None, "last_status": None, "last_error": "",
}  # fmt: skip
DEAD = {
    **DELIVERY, "state": "DEAD", "attempts": 1, "last_status": 500, "last_error": "answered 500",
    "contents": [{"event_id": "test_1", "kind": "notification.test", "subject": "ntr_1",
                  "at": "2026-11-30T12:00:00Z", "says": "Somebody tried this rule"}],
    "tries": [{"n": 1, "at": "2026-11-30T12:00:00Z", "ms": 12, "status": 500, "error": "answered 500",
               "response": "no"}],
}  # fmt: skip
LINE = b'{"job_id":"job_1"}\n'
SUM = hashlib.sha256(LINE).hexdigest()
FILE = {"name": "jobs-00001-aa.jsonl", "kind": "jobs", "rows": 1, "bytes": len(LINE), "sha256": SUM}
MANIFEST = json.dumps(
    {"format": "clockhouse-tenant-export/1", "counts": {"jobs": 1}, "files": [FILE]}
).encode()
WHOLE = {
    "tenant_export_id": "tex_1", "state": "DONE", "kinds": ["jobs"], "kinds_done": 1, "counts": {"jobs": 1},
    "files": [FILE, {"name": "manifest.json", "kind": "manifest", "rows": None, "bytes": len(MANIFEST),
                     "sha256": hashlib.sha256(MANIFEST).hexdigest()}],
    "error": None, "created_at": "2026-11-30T12:00:00Z", "finished_at": None, "expires_at": None,
}  # fmt: skip


def _answers(request: Received) -> Any:
    path = request.path
    if path.endswith(".jsonl"):
        return 200, LINE.decode()
    if path.endswith("manifest.json"):
        return 200, MANIFEST.decode()
    if path.startswith("/v1/tenant-exports"):
        return 202 if request.method == "POST" else 200, WHOLE
    if path == "/v1/notification-kinds":
        return {"items": [{"name": "run.dead_lettered", "group": "Runs", "says": "a run failed for good"}]}
    if path.endswith(":test"):
        return 202, DELIVERY
    if path.endswith(":redeliver"):
        return 202, DELIVERY
    if path == "/v1/notification-deliveries":
        return {"items": [DEAD], "next_cursor": None}
    if path.startswith("/v1/notification-deliveries/"):
        return DEAD
    if request.method == "DELETE":
        return 204, ""
    if path == "/v1/notification-rules" and request.method == "GET":
        return {"items": [RULE], "next_cursor": None}
    secret = "whsec_x" if request.method == "POST" else None
    return 201 if request.method == "POST" else 200, {**RULE, "secret": secret}


def test_from_python(server: Server, client: Clockhouse) -> None:
    server.handler = _answers
    made = client.notifications.create(
        "on call", ["run.dead_lettered"], url="https://example.com/hook", filters={"tags": ["prod"]}
    )
    assert made.secret == "whsec_x"
    assert server.received[-1].body == {
        "name": "on call", "kinds": ["run.dead_lettered"], "channel": "WEBHOOK",
        "url": "https://example.com/hook", "filters": {"tags": ["prod"]},
    }  # fmt: skip
    assert [rule.rule_id for rule in client.notifications.list()] == ["ntr_1"]
    shown = client.notifications.delivery("ntd_1")
    assert (shown.over, shown.tries[0].status, shown.contents[0].event_id) == (True, 500, "test_1")


def test_from_coroutines(server: Server) -> None:
    server.handler = _answers

    async def all_of_it() -> None:
        async with AsyncClockhouse(api_url=server.url, api_key="k", retries=QUICK) as client:
            assert list((await client.notifications.get("ntr_1")).kinds) == ["run.dead_lettered"]
            assert (await client.tenant_exports.get("tex_1")).over

    asyncio.run(all_of_it())


def test_rules_from_a_terminal(server: Server, cli: Any) -> None:
    server.handler = _answers
    words = ("on call", "--kind", "run.dead_lettered", "--url", "https://example.com/hook", "--every", "5m")
    made = cli("notifications", "create", *words)
    assert made.exit_code == 0
    assert "whsec_x" in made.stdout
    assert server.received[-1].body["digest_minutes"] == 5
    assert json.loads(cli("notifications", "list", "--json").stdout)[0]["rule_id"] == "ntr_1"
    assert "on call" in cli("notifications", "list").stdout
    assert "prod" in cli("notifications", "show", "ntr_1").stdout
    assert "run.dead_lettered" in cli("notifications", "kinds").stdout
    tried = cli("notifications", "test", "ntr_1")
    assert tried.exit_code == 1, "it did not arrive"
    assert "answered 500" in tried.stdout
    assert "ntd_1" in cli("notifications", "deliveries").stdout
    assert cli("notifications", "redeliver", "ntd_1").exit_code == 0
    assert cli("notifications", "edit", "ntr_1", "--disable").exit_code == 0
    assert server.received[-1].body == {"enabled": False}
    assert cli("notifications", "remove", "ntr_1", "--yes").exit_code == 0
    assert cli("notifications", "create", "x", "--kind", "*").exit_code == 2, "by which way?"


def test_a_whole_export_from_a_terminal(server: Server, cli: Any, tmp_path: Path) -> None:
    server.handler = _answers
    assert cli("tenant-export", "create").exit_code == 0
    folder = tmp_path / "mine"
    assert cli("tenant-export", "download", "tex_1", "-o", str(folder)).exit_code == 0
    assert (folder / FILE["name"]).read_bytes() == LINE  # type: ignore[operator]
    verified = cli("tenant-export", "verify", str(folder), "--json")
    assert json.loads(verified.stdout) == {"holds": True, "counts": {"jobs": 1}, "faults": []}
    (folder / str(FILE["name"])).write_bytes(LINE + LINE)
    spoilt = cli("tenant-export", "verify", str(folder))
    assert spoilt.exit_code == 1
    assert "has 2 rows, the manifest says 1" in " ".join(spoilt.stdout.split())
