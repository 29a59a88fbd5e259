"""`clockhouse targets test`: one call, no job."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from controlplane.client.cli import app
from tests.component.controlplane.client.conftest import Server

TESTED = {
    "test_id": "t", "ok": True, "url": "https://a.example/x", "method": "PUT", "status": 204, "error": None,
    "latency_ms": 12, "body_hidden": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def settings(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOCKHOUSE_API_URL", server.url)
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", "ch_live_test")


def test_a_call_is_one_request(server: Server) -> None:
    server.script.append(TESTED)
    asked = ["targets", "test", "tgt_x", "--path", "/x", "--method", "PUT", "--timeout", "5"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    (request,) = server.received
    assert (request.method, request.path) == ("POST", "/v1/targets/tgt_x:test")
    assert request.body == {"path": "/x", "method": "PUT", "timeout_seconds": 5}
    assert "PUT https://a.example/x\nanswered: HTTP 204 in 12 ms" in done.output


def test_no_answer_is_a_bad_outcome(server: Server) -> None:
    failed = {**TESTED, "ok": False, "status": None, "error": "refused [Errno 111]"}
    server.script.append(failed)
    done = CliRunner().invoke(app, ["targets", "test", "tgt_x"])
    assert done.exit_code == 1
    assert "failed: refused [Errno 111] in 12 ms" in done.output
