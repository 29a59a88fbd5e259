"""Requests that change something STRICT: one for each route, each on things of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.api import Api
from tests.waiting import eventually_sync

WORKER = {"worker_id": "w-strict", "wait_seconds": 1}
FLOW = """
workflow: strict_order
version: {version}
region_policy: STRICT
steps:
  - id: paid
    wait_for_signal: {{ name: paid, timeout: 1h }}
  - id: ship
    activity: {{ target_id: {target}, path: /ship }}
"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One change, as it is sent each time."""

    what: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    key: str = field(default_factory=lambda: str(uuid.uuid4()))

    def send(self, api: Api) -> httpx.Response:
        return api.http.request(self.method, self.path, json=self.body, headers={"Idempotency-Key": self.key})


def now_text(**later: float) -> str:
    """So much later than now, in whole seconds."""
    return (datetime.now(UTC) + timedelta(**later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def once(target_id: str, seconds: float, number: int = 0) -> dict[str, Any]:
    """A STRICT job that is called in so many seconds."""
    return {
        "schedule": {"type": "ONCE", "run_at": now_text(seconds=seconds)},
        "target": {"type": "HTTP", "target_id": target_id},
        "dispatch_window_seconds": 1,
        "region_policy": "STRICT",
        "payload": {"number": number},
    }


class Things:
    """STRICT things made and confirmed while all regions are there, to be changed when they are not."""

    def __init__(self, api: Api, target_id: str) -> None:
        self.api, self.target_id = api, target_id
        self._began = now_text(hours=-3)
        for version in (1, 2):
            answer = api.http.put(
                f"/v1/workflow-definitions/strict_order/versions/{version}",
                content=FLOW.format(version=version, target=target_id),
            )
            if answer.status_code not in (200, 201):
                raise AssertionError(answer.text)

    def hourly(self) -> dict[str, Any]:
        schedule = {"type": "RATE", "every_seconds": 3600, "start_at": self._began}
        target = {"target_id": self.target_id}
        return {"schedule": schedule, "target": target, "region_policy": "STRICT", "paused": True}

    def job(self) -> str:
        """A paused job with a past."""
        return str(self.api.create_job(self.hourly())["job_id"])

    def task(self, queue: str, *, poll: bool = True, count: int = 1) -> list[dict[str, Any]]:
        """Tasks of STRICT jobs: those a worker holds, or none where they are left in the queue."""
        for _ in range(count):
            target = {"type": "TASK_QUEUE", "task_queue": queue, "lease_seconds": 600}
            body = {"schedule": {"type": "NOW"}, "target": target, "region_policy": "STRICT"}
            self.api.create_job(body)
        held: list[dict[str, Any]] = []

        def all_held() -> bool:
            held.extend(poll_once(self.api, queue))
            return len(held) == count

        if poll:
            eventually_sync(all_held, timeout=60)
        else:
            seen = f"/v1/task-queues/{queue}"
            eventually_sync(lambda: self.api.http.get(seen).json().get("backlog") == count, timeout=60)
        return held

    def dead(self, count: int) -> list[str]:
        """Dead letters of STRICT runs."""
        held = self.task("strict-dead", count=count)
        for task in held:
            ending = {"epoch": task["epoch"], "outcome": "FAILED", "retryable": False, "error": "no"}
            self.api.call("POST", f"/v1/runs/{task['run_id']}:complete", ending)
        return [str(task["run_id"]) for task in held]

    def workflow(self) -> str:
        """A STRICT workflow that waits to be paid."""
        name = f"order-{uuid.uuid4().hex[:12]}"
        self.api.call("POST", "/v1/workflows", {"workflow_id": name, "definition": "strict_order"})
        return name

    def waits(self, workflow_id: str) -> None:
        def waiting() -> bool:
            history = self.api.http.get(f"/v1/workflows/{workflow_id}/history").json()
            return len(history.get("items", ())) > 1

        eventually_sync(waiting, timeout=30)

    def backfilled(self) -> str:
        """A backfill that will take a while."""
        body = self.hourly()
        body["schedule"] = {**body["schedule"], "every_seconds": 10}
        body["target"] = {"type": "TASK_QUEUE", "task_queue": "strict-backfilled"}
        job = self.api.create_job(body)["job_id"]
        body = {"from": now_text(hours=-3), "until": now_text(), "max_per_second": 1}
        return str(self.api.call("POST", f"/v1/jobs/{job}:backfill", body)["backfill_id"])

    def selected(self) -> tuple[str, dict[str, Any]]:
        """A selection of a job to be applied, and what applies it."""
        chosen = {"action": "cancel", "filter": {"job_ids": [self.job()]}}
        selection = self.api.call("POST", "/v1/selections", chosen)
        return f"/v1/selections/{selection['selection_id']}:apply", {"hash": selection["hash"]}

    def requests(self) -> Iterator[Request]:
        """One of each route."""
        yield Request(what="create", method="POST", path="/v1/jobs", body=once(self.target_id, 1))
        yield Request(what="batch", method="POST", path="/v1/jobs:batch", body={"jobs": [self.hourly()]})
        keyed = f"/v1/jobs/by-key/{uuid.uuid4().hex}"
        yield Request(what="declare", method="PUT", path=keyed, body=self.hourly())
        unchanged = f"/v1/jobs/by-key/{uuid.uuid4().hex}"
        self.api.call("PUT", unchanged, self.hourly())
        yield Request(what="declare again", method="PUT", path=unchanged, body=self.hourly())
        yield Request(what="cancel by key", method="DELETE", path=unchanged)
        edited = f"/v1/jobs/by-key/{uuid.uuid4().hex}"
        self.api.call("PUT", edited, self.hourly())
        yield Request(what="declare otherwise", method="PUT", path=edited, body=self.hourly() | {"name": "n"})
        yield Request(what="edit", method="PATCH", path=f"/v1/jobs/{self.job()}", body={"name": "n"})
        yield Request(what="pause", method="POST", path=f"/v1/jobs/{self.job()}:pause")
        yield Request(what="resume", method="POST", path=f"/v1/jobs/{self.job()}:resume")
        yield Request(what="cancel", method="DELETE", path=f"/v1/jobs/{self.job()}")
        yield Request(what="trigger", method="POST", path=f"/v1/jobs/{self.job()}:trigger")
        stretch = {"from": now_text(hours=-3), "until": now_text()}
        yield Request(what="backfill", method="POST", path=f"/v1/jobs/{self.job()}:backfill", body=stretch)
        yield Request(what="stop a backfill", method="POST", path=f"/v1/backfills/{self.backfilled()}:stop")
        apply, body = self.selected()
        yield Request(what="bulk", method="POST", path=apply, body=body)
        letters = self.dead(3)
        yield Request(what="redrive one", method="POST", path=f"/v1/dlq/{letters[0]}:redrive")
        for verb, letter in zip(("redrive", "purge"), letters[1:], strict=True):
            chosen = {"filter": {"run_ids": [letter]}}
            yield Request(what=verb, method="POST", path=f"/v1/dlq:{verb}", body=chosen)
        one, two, three = self.task("strict-held", count=3)
        for task in (one, two):
            ending = {"epoch": task["epoch"], "outcome": "SUCCEEDED"}
            yield Request(
                what="complete", method="POST", path=f"/v1/runs/{task['run_id']}:complete", body=ending
            )
        ending = {"items": [{"run_id": three["run_id"], "epoch": three["epoch"], "outcome": "SUCCEEDED"}]}
        yield Request(what="complete many", method="POST", path="/v1/runs:complete", body=ending)
        cancelled = self.task("strict-cancelled")[0]["run_id"]
        yield Request(what="cancel a run", method="POST", path=f"/v1/runs/{cancelled}:cancel")
        begun = {"workflow_id": f"order-{uuid.uuid4().hex[:12]}", "definition": "strict_order"}
        yield Request(what="start a workflow", method="POST", path="/v1/workflows", body=begun)
        signal = {"signal_id": uuid.uuid4().hex, "payload": {}}
        paid = f"/v1/workflows/{self.workflow()}/signals/paid"
        yield Request(what="signal", method="POST", path=paid, body=signal)
        for verb in ("cancel", "terminate"):
            yield Request(
                what=f"{verb} a workflow", method="POST", path=f"/v1/workflows/{self.workflow()}:{verb}"
            )
        moved, again = self.workflow(), self.workflow()
        self.waits(again)
        yield Request(
            what="migrate", method="POST", path=f"/v1/workflows/{moved}:migrate", body={"version": 2}
        )
        yield Request(what="reset", method="POST", path=f"/v1/workflows/{again}:reset", body={"step": "paid"})


#: What cannot be said twice: the letter has gone.
NOT_TWICE = frozenset({"redrive one"})


def poll_once(api: Api, queue: str, count: int = 10) -> list[dict[str, Any]]:
    """What a worker gets of a queue at once."""
    answer = api.http.post(f"/v1/task-queues/{queue}/tasks:poll", json={**WORKER, "max_tasks": count})
    return list(answer.json()["tasks"]) if answer.status_code == 200 else []


def unconfirmed(answer: httpx.Response) -> bool:
    """Whether an answer says that no other region has confirmed it; of one in a batch, too."""
    document = answer.json()
    if answer.status_code == 200 and "results" in document:
        return all(
            (one["status"], one.get("problem", {}).get("code")) == (503, "UNCONFIRMED")
            for one in document["results"]
        )
    return answer.status_code == 503 and document.get("code") == "UNCONFIRMED"


def confirmed(answer: httpx.Response) -> bool:
    """Whether it is done, here and elsewhere."""
    results = answer.json().get("results", ()) if answer.status_code == 200 else ()
    return answer.status_code < 300 and all(one["status"] < 300 for one in results)
