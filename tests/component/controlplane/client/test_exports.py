"""Exports from Python and from a terminal: asked for, followed, fetched and verified."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.client import AsyncClockhouse, Clockhouse, NotFound, UnexpectedAnswer
from tests.component.controlplane.client.conftest import QUICK, Received, Server

CONTENT = "tenant_id,hour\n" + "tnt_1,2026-10-01T00:00:00Z\n" * 5_000
NAME = "usage-2026-10-01-00001-0123456789ab.csv"
EXPORT = {
    "export_id": "exp_1", "tenant_id": "tnt_1", "dataset": "USAGE", "format": "CSV", "from": "2026-10-01",
    "to": "2026-10-31", "state": "REQUESTED", "rows_done": 0, "rows_expected": 5_000, "files": [],
    "created_at": "2026-11-30T12:00:00Z", "error": None,
}  # fmt: skip
RUNNING = {**EXPORT, "state": "RUNNING", "rows_done": 2_000}
DONE = {
    **EXPORT, "state": "DONE", "rows_done": 5_000, "files": [
        {"name": NAME, "kind": "data", "rows": 5_000, "bytes": len(CONTENT),
         "sha256": hashlib.sha256(CONTENT.encode()).hexdigest()},
    ],
}  # fmt: skip


def test_created_followed_and_fetched(server: Server, client: Clockhouse, tmp_path: Path) -> None:
    server.script = [(201, EXPORT), RUNNING, DONE, (503, {"code": "UNAVAILABLE"}), CONTENT_ANSWER]
    made = client.exports.create("USAGE", "2026-10-01", "2026-10-31")
    seen: list[int] = []
    done = client.exports.wait(made.export_id, told=lambda export: seen.append(export.rows_done))
    assert (seen, done.state, done.files[0].rows) == ([2_000, 5_000], "DONE", 5_000)
    told: list[int] = []
    (path,) = client.exports.download(done, tmp_path, told=told.append)
    assert (path, path.read_text(), sum(told)) == (tmp_path / NAME, CONTENT, len(CONTENT))
    first = server.received[0]
    assert first.body == {"dataset": "USAGE", "from": "2026-10-01", "to": "2026-10-31"}
    assert first.headers["idempotency-key"]
    assert server.received[-1].path == f"/v1/exports/exp_1/files/{NAME}"


CONTENT_ANSWER = (200, CONTENT)


def test_what_arrives_changed_is_not_kept(server: Server, client: Clockhouse, tmp_path: Path) -> None:
    server.script = [DONE, (200, CONTENT + "x")]
    with pytest.raises(UnexpectedAnswer, match="arrived with SHA-256"):
        client.exports.download(client.exports.get("exp_1"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_leads_nowhere_else(server: Server, client: Clockhouse, tmp_path: Path) -> None:
    server.script = [{**DONE, "files": [{**DONE["files"][0], "name": "../x"}]}]  # type: ignore[index]
    with pytest.raises(UnexpectedAnswer, match="is called"):
        client.exports.download(client.exports.get("exp_1"), tmp_path)


def test_a_refused_file_says_why(server: Server, client: Clockhouse, tmp_path: Path) -> None:
    server.script = [DONE, (404, {"code": "NOT_FOUND", "detail": "There is no such file."})]
    with pytest.raises(NotFound, match="no such file"):
        client.exports.download(client.exports.get("exp_1"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_async_client_does_the_same(server: Server, tmp_path: Path) -> None:
    server.script = [(201, EXPORT), RUNNING, DONE, (503, {"code": "UNAVAILABLE"}), CONTENT_ANSWER]

    async def all_of_it() -> None:
        async with AsyncClockhouse(server.url, "ch_live_test", timeout=5, retries=QUICK) as client:
            made = await client.exports.create("USAGE", "2026-10-01", "2026-10-31", format="CSV")
            done = await client.exports.wait(made.export_id)
            (path,) = await client.exports.download(done, tmp_path)
            assert path.read_text() == CONTENT

    asyncio.run(all_of_it())


def _answers(request: Received) -> Any:
    if request.path.endswith(".csv"):
        return CONTENT_ANSWER
    if request.path.startswith("/v1/export-schedules"):
        one = {"dataset": "FOCUS", "format": "CSV", "cadence": "MONTHLY", "version": 1, "created_at": None}
        return one if request.method == "PUT" else {"items": [one]} if request.method == "GET" else (204, "")
    if request.method == "POST":
        return 201, EXPORT
    return {"items": [DONE], "next_cursor": None} if request.path == "/v1/exports" else DONE


def test_the_command_line(server: Server, cli: Any, tmp_path: Path) -> None:
    server.handler = _answers
    made = cli("exports", "create", "focus", "--month", "2026-12", "--format", "parquet", "--json")
    assert (made.exit_code, json.loads(made.stdout)["state"]) == (0, "DONE")
    assert server.received[0].body == {
        "dataset": "FOCUS", "format": "PARQUET", "from": "2026-12-01", "to": "2026-12-31",
    }  # fmt: skip
    assert NAME in cli("exports", "show", "exp_1").stdout
    assert json.loads(cli("exports", "list", "--json").stdout)[0]["export_id"] == "exp_1"
    assert "5,000" in cli("exports", "list").stdout
    fetched = cli("exports", "download", "exp_1", "--to-folder", str(tmp_path / "costs"), "--json")
    assert json.loads(fetched.stdout) == {"files": [str(tmp_path / "costs" / NAME)]}
    assert (tmp_path / "costs" / NAME).read_text() == CONTENT
    assert "month" in cli("exports", "schedule", "focus", "monthly").stdout
    assert json.loads(cli("exports", "schedules", "--json").stdout)["items"][0]["cadence"] == "MONTHLY"
    assert cli("exports", "unschedule", "focus").exit_code == 0


def test_the_command_line_says_what_is_missing(server: Server, cli: Any) -> None:
    for words in (("usage",), ("usage", "--from", "2026-10-01"), ("focus", "--month", "2026-1x")):
        assert cli("exports", "create", *words).exit_code == 2
    assert server.received == []
    server.handler = lambda request: {**EXPORT, "state": "FAILED", "error": "the place is away"}
    failed = cli("exports", "create", "usage", "--from", "2026-10-01", "--to", "2026-10-31")
    assert (failed.exit_code, "the place is away" in failed.stdout) == (1, True)
    none = cli("exports", "download", "exp_1")
    assert (none.exit_code, "the place is away" in none.stderr) == (2, True)
