"""The examples of the README do what they say. (The client's own runs in the acceptance tests.)"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cells.execution.signing import Signer, show_secret
from tests.component.controlplane.client.queue_server import QueueServer, serving
from tests.waiting import eventually

README = (Path(__file__).resolve().parents[4] / "controlplane/client/README.md").read_text()
SECRET = b"s" * 32


def example(kind: str, word: str) -> str:
    """The one block of that kind that holds a word."""
    (found,) = (block for block in re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL) if word in block)
    return str(found)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102
    return names


def call(token: int) -> dict[str, str]:
    stamp = str(int(time.time()))
    return {
        "webhook-id": "job_1:2026-09-28T12:00:00Z",
        "webhook-timestamp": stamp,
        "webhook-signature": Signer([SECRET]).sign("job_1:2026-09-28T12:00:00Z", stamp, b"{}"),
        "x-fencing-token": str(token),
    }


def test_the_target() -> None:
    names = run(example("python", "def handle"))
    handle, ledger = names["handle"], names["ledger"]
    assert handle(show_secret(b"x" * 32), call(5), b"{}") == 401
    assert ledger.admit(names["verify"](show_secret(SECRET), call(6), b"{}")) is names["Verdict"].NEW
    assert handle(show_secret(SECRET), call(5), b"{}") == 409
    assert handle(show_secret(SECRET), call(6), b"{}") == 200
    assert ledger.admit(names["verify"](show_secret(SECRET), call(7), b"{}")) is names["Verdict"].DONE


def test_the_fence_in_a_database(postgres_url: str) -> None:
    sql = example("sql", "ON CONFLICT")
    with psycopg.connect(postgres_url) as database:
        database.execute(
            "CREATE TEMPORARY TABLE done"
            " (key text PRIMARY KEY, token bigint NOT NULL, finished boolean NOT NULL DEFAULT false)"
        )

        def admitted(key: str, token: int) -> bool:
            return database.execute(sql, {"key": key, "token": token}).rowcount == 1

        assert [admitted("a", 5), admitted("a", 5), admitted("a", 4), admitted("b", 4)] == [
            True,
            False,
            False,
            True,
        ]
        assert admitted("a", 6)  # a later claim takes over what was not finished
        database.execute("UPDATE done SET finished = true WHERE key = 'a'")
        assert not admitted("a", 7)
        database.rollback()


async def test_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(QueueServer()) as queues:
        monkeypatch.setenv("CLOCKHOUSE_API_URL", queues.url)
        monkeypatch.setenv("CLOCKHOUSE_API_KEY", "k")
        worker = run(example("python", "Worker("))["worker"]
        entry = await queues.put("r", {"ledger": "EU-2"})
        at_work = asyncio.create_task(worker.serve())
        await eventually(lambda: entry.state == "SUCCEEDED")
        assert entry.result == {"ledger": "EU-2"}
        worker.drain()
        await asyncio.wait_for(at_work, 10)
