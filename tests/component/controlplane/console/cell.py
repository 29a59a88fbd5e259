"""A cell's public API over HTTP with fixed answers, that checks signatures with the contract. How real
cells answer is the business of tests/browser; here it is about whom the console speaks for, and
about answers that a real cell gives only on a bad day."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from cells.contract import BODY_HASH_HEADER, Caller, body_hash, verify_request
from tests.component.controlplane.console.past import BACKFILL, BACKFILL_PLAN, CALENDAR, LETTERS, REDRIVE

JOB_ID = "job_01m8njb93zg06vpdgn4y6fe2g1"
RUN_ID = f"{JOB_ID}:2026-11-30T06:33:26Z"

TARGET = {
    "target_id": "tgt_echo",
    "state": "APPROVED",
    "version": 1,
    "base_url": "https://echo.example.com",
    "owner_team": None,
    "description": None,
    "max_concurrency": 10,
    "initial_concurrency": 10,
    "latency_slo_ms": 2000,
    "auth": {"type": "HMAC_SHA256"},
    "created_by": "key:x",
    "created_at": "2026-11-30T06:00:00Z",
    "updated_at": "2026-11-30T06:00:00Z",
    "approved_by": "key:x",
    "approved_at": "2026-11-30T06:00:00Z",
}
JOB = {
    "job_id": JOB_ID,
    "status": "SCHEDULED",
    "version": 1,
    "next_run_at": "2026-12-01T08:00:00Z",
    "next_run_local": "2026-12-01T09:00:00+01:00",
    "due_at": "2026-12-01T08:01:10Z",
    "key": None,
    "name": "Digest <b>",
    "tags": ["mail"],
    "schedule": {
        "type": "CRON",
        "cron": "0 9 * * *",
        "time_zone": "Europe/Berlin",
        "dst": {"gap": "SHIFT", "overlap": "FIRST"},
    },
    "target": {
        "type": "HTTP",
        "target_id": "tgt_echo",
        "path": "/x",
        "method": "POST",
        "timeout_seconds": 30,
    },
    "headers": {},
    "payload_hidden": True,
    "retry_policy": {"max_attempts": 3, "initial_backoff_seconds": 10.0, "max_backoff_seconds": 600.0},
    "priority": "DEFAULT",
    "dispatch_window_seconds": 300,
    "misfire_policy": "RUN_ONCE",
    "misfire_grace_seconds": 0,
    "region_policy": "HOME_ASYNC",
    "created_at": "2026-11-30T06:00:00Z",
    "updated_at": "2026-11-30T06:00:00Z",
    "recent_runs": [],
}
RUN = {
    "run_id": RUN_ID,
    "job_id": JOB_ID,
    "scheduled_for": "2026-11-30T06:33:26Z",
    "state": "FAILED",
    "outcome": "FAILED",
    "attempt": 1,
    "series": 1,
    "epoch": 3145728,
    "version": 1,
    "priority": "DEFAULT",
    "target_id": "tgt_echo",
    "http_status": 500,
    "reason": "attempts exhausted",
    "skipped": 0,
    "due_at": "2026-11-30T06:33:26Z",
    "released_at": "2026-11-30T06:33:26Z",
    "claimed_at": "2026-11-30T06:33:26Z",
    "started_at": "2026-11-30T06:33:26Z",
    "finished_at": "2026-11-30T06:33:27Z",
    "cancel_requested": False,
    "next_attempt_at": None,
    "attempts": [
        {
            "number": 1,
            "epoch": 3145728,
            "outcome": "TERMINAL",
            "claimed_at": "2026-11-30T06:33:26Z",
            "started_at": "2026-11-30T06:33:26Z",
            "finished_at": "2026-11-30T06:33:27Z",
            "host": "h",
            "status": 500,
            "error": None,
            "retry_in_ms": None,
            "body": "<script>alert(1)</script>",
        }
    ],
    "idempotency_key": RUN_ID,
    "where_the_time_went": {
        "window_ms": 5900,
        "retries_ms": 0,
        "quota_ms": 0,
        "queue_ms": 3,
        "slot_ms": 3,
        "run_ms": 1,
    },
}
OCCURRENCE = {
    "run_id": RUN_ID,
    "scheduled_for": "2026-11-30T06:33:26Z",
    "local": "2026-11-30T07:33:26+01:00",
    "verdict": "failed",
    "sentence": "It failed for good and is in the dead-letter queue.",
    "state": "FAILED",
    "reason": "attempts exhausted",
    "count": 1,
    "by_hand": False,
    "attempt": 1,
    "due_at": "2026-11-30T06:33:26Z",
    "started_at": "2026-11-30T06:33:26Z",
    "finished_at": "2026-11-30T06:33:27Z",
    "late_ms": 0,
}
LEDGER = {
    "job_id": JOB_ID,
    "status": "SCHEDULED",
    "past": [OCCURRENCE],
    "next": [
        {
            "at": "2026-12-01T08:00:00Z",
            "local": "2026-12-01T09:00:00+01:00",
            "note": None,
            "due_at": "2026-12-01T08:01:10Z",
        }
    ],
    "next_cursor": None,
}
SELECTION = {
    "selection_id": "sel_1",
    "action": "pause",
    "filter": {"tag": "mail"},
    "count": 12,
    "sample": [
        {
            "job_id": JOB_ID,
            "name": "Digest <b>",
            "key": None,
            "status": "SCHEDULED",
            "target_id": "tgt_echo",
            "next_run_at": "2026-12-01T08:00:00Z",
        }
    ],
    "hash": "ab" * 32,
    "created_by": "user:x",
    "created_at": "2026-11-30T06:40:00Z",
    "expires_at": "2099-11-30T06:55:00Z",
}
OPERATION = {
    "operation_id": "op_1",
    "selection_id": "sel_1",
    "action": "pause",
    "state": "RUNNING",
    "total": 12,
    "processed": 5,
    "done": 3,
    "unchanged": 1,
    "failed": 1,
    "reasons": {"the job is busy": 1},
    "failures": [{"job_id": JOB_ID, "reason": "the job is busy"}],
    "max_per_second": 200,
    "created_by": "user:x",
    "created_at": "2026-11-30T06:41:00Z",
    "finished_at": None,
    "stopped_by": None,
}
QUEUE: dict[str, Any] = {
    "task_queue": "ledger.v2",
    "state": "NO_WORKER",
    "reason": "No worker has polled this queue for 7 minutes.",
    "backlog": 10_000,
    "oldest_due_at": "2026-11-30T06:20:00Z",
    "leases": 1,
    "workers": 0,
    "last_polled_at": "2026-11-30T06:30:00Z",
    "paused_at": None,
    "created_at": "2026-11-30T06:00:00Z",
}
QUEUE_READ = {
    **QUEUE,
    "seen": [
        {
            "worker_id": "w-<1>",
            "first_seen_at": "2026-11-30T06:10:00Z",
            "last_seen_at": "2026-11-30T06:30:00Z",
            "left_at": "2026-11-30T06:30:00Z",
            "leases": 1,
        }
    ],
    "held": [
        {
            "run_id": RUN_ID,
            "job_id": JOB_ID,
            "worker_id": "w-<1>",
            "attempt": 1,
            "claimed_at": "2026-11-30T06:29:00Z",
            "heartbeat_at": None,
            "lease_expires_at": "2026-11-30T06:31:00Z",
            "progress": {"rows": 7},
        }
    ],
}
EVENT = {
    "event_id": "evt_1_1",
    "type": "job.paused",
    "at": "2026-11-30T06:20:00Z",
    "subject": JOB_ID,
    "actor": "key:abc",
    "data": {"name": "Digest <b>"},
}
FIGURES = {
    "minute": "2026-11-30T06:33:00Z",
    "started": 2,
    "succeeded": 1,
    "failed": 1,
    "retried": 0,
    "cancelled": 0,
    "skipped": 0,
    "lag_p50_ms": 4.0,
    "lag_p99_ms": 9.0,
    "lag_max_ms": 9,
    "lag_mean_ms": 5.0,
}

#: What the cell tells the control plane of a tenant's use.
USE = {
    "at": "2026-11-30T06:33:00Z",
    "job_runs_per_second": 0.05,
    "pending_timers": 12,
    "running_runs": 3,
    "strict_jobs_per_second": 0,
}

Answer = tuple[int, Any]


def _read(body: bytes, kind: str | None) -> Any:
    """A body: JSON, or the text that a definition is."""
    if not body:
        return None
    return body.decode() if kind == "application/yaml" else json.loads(body)


@dataclass
class Call:
    """What the cell was asked, and by whom."""

    method: str
    target: str
    headers: Any
    body: Any
    caller: Caller


class Cell:
    """Use as a context manager. `answers` maps `METHOD /path` to what is said instead of the usual."""

    def __init__(self, name: str, key: bytes) -> None:
        self.name = name
        self.calls: list[Call] = []
        self.answers: dict[str, Answer | bytes] = {}
        #: Said first and in this order, before `answers`.
        self.turns: dict[str, list[Answer]] = {}
        self.use: dict[str, Any] = dict(USE)
        cell = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer goes out whole: in two parts it waits for an acknowledgement

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Quiet."""

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                caller = verify_request(
                    keys={cell.name: key},
                    now_ms=time.time_ns() // 1_000_000,
                    method=self.command,
                    target=self.path,
                    headers=self.headers,
                )
                assert self.headers[BODY_HASH_HEADER] == body_hash(body)
                parsed = _read(body, self.headers.get("Content-Type"))
                cell.calls.append(Call(self.command, self.path, self.headers, parsed, caller))
                said = cell.answer(self.command, urlsplit(self.path).path)
                status, raw = (
                    (200, said) if isinstance(said, bytes) else (said[0], json.dumps(said[1]).encode())
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class's names

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def answer(self, method: str, path: str) -> Answer | bytes:
        """The usual answers."""
        if turns := self.turns.get(f"{method} {path}"):
            return turns.pop(0)
        given = self.answers.get(f"{method} {path}")
        if given is not None:
            return given
        usual: dict[str, Any] = {
            "GET /v1/jobs": {"items": [JOB], "next_cursor": "c+/1"},
            f"GET /v1/jobs/{JOB_ID}": JOB,
            f"GET /v1/jobs/{JOB_ID}/occurrences": LEDGER,
            "GET /v1/targets/tgt_echo": TARGET,
            "GET /v1/targets/tgt_echo/health": {"latency_slo_ms": 2000, "limit": None, "drill": None},
            "GET /v1/task-queues": {"items": [QUEUE], "next_cursor": None},
            "GET /v1/task-queues/ledger.v2": QUEUE_READ,
            "POST /v1/selections": SELECTION,
            "GET /v1/selections/sel_1": SELECTION,
            "POST /v1/selections/sel_1:apply": OPERATION,
            "GET /v1/events": {"items": [EVENT], "next_cursor": "e", "more": False},
            "GET /v1/herd": {
                "minutes": [{"minute": "2026-12-01T08:01:00Z", "count": 3}],
                "total": 3,
                "jobs": 3,
                "jobs_left_out": 0,
                "truncated": False,
            },
            "GET /v1/operations": {"items": [OPERATION], "next_cursor": None},
            "GET /v1/operations/op_1": OPERATION,
            "POST /v1/operations/op_1:stop": {**OPERATION, "state": "STOPPED"},
            "GET /v1/runs": {"items": [RUN], "next_cursor": None, "looked_back_to": None},
            f"GET /v1/runs/{RUN_ID}": RUN,
            "GET /v1/workflow-definitions": {"items": [], "next_cursor": None},
            "GET /v1/calendars": {"items": [CALENDAR], "next_cursor": None},
            "GET /v1/calendars/cal_de": CALENDAR,
            "PUT /v1/calendars/cal_de": {**CALENDAR, "version": 3},
            f"POST /v1/jobs/{JOB_ID}:backfill": BACKFILL_PLAN,
            "GET /v1/backfills": {"items": [BACKFILL], "next_cursor": None},
            "GET /v1/backfills/bf_1": BACKFILL,
            "POST /v1/backfills/bf_1:stop": {**BACKFILL, "state": "STOPPED"},
            "POST /v1/dlq:redrive": LETTERS,
            "GET /v1/redrives": {"items": [REDRIVE], "next_cursor": None},
            "GET /v1/redrives/op_2": REDRIVE,
            "POST /v1/redrives/op_2:stop": {**REDRIVE, "state": "STOPPED"},
            "GET /v1/targets": {"items": [TARGET], "next_cursor": None},
            "GET /v1/dlq": {"items": [], "groups": [], "truncated": False, "next_cursor": None},
            "GET /v1/stats": {"since": "", "until": "", "minutes": [FIGURES], "total": FIGURES},
            "POST /v1/schedules:preview": {
                "occurrences": [
                    {"at": "2026-12-01T08:00:00Z", "local": "2026-12-01T09:00:00+01:00", "note": None}
                ],
                "excluded": [{"at": "2026-12-25T08:00:00Z", "local": "2026-12-25T09:00:00+01:00"}],
                "transitions": [],
            },
        }
        if path.startswith("/internal/tenants/") and path.endswith("/use"):
            usual[f"GET {path}"] = self.use
        found = usual.get(f"{method} {path}")
        if found is None:
            return 404, {"status": 404, "code": "NOT_FOUND", "detail": "There is no such thing."}
        return 200, found

    def asked(self, method: str, path: str) -> list[Call]:
        """Calls of a path."""
        return [c for c in self.calls if c.method == method and urlsplit(c.target).path == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
