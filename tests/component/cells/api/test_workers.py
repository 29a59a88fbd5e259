"""Pull workers over the API: polls, heartbeats, endings, releases, and what people see of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cells.contract import Scope
from cells.domain import ids
from cells.ports import Member
from cells.pulling import Poller
from tests.component.cells.api.harness import Api, Cell
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUE = "ledger"
POLL = f"/v1/task-queues/{QUEUE}/tasks:poll"


async def task_job(api: Api, queue: str = QUEUE, *, lease_seconds: int = 60, **more: Any) -> Any:
    body = {
        "schedule": {"type": "NOW"},
        "target": {"type": "TASK_QUEUE", "task_queue": queue, "lease_seconds": lease_seconds},
        "payload": {"n": 1},
        **more,
    }
    return await api.ok("POST", "/v1/jobs", body, status=201)


async def superseded(api: Api, path: str, body: Any) -> Any:
    return await api.problem("POST", path, body, status=409, code="EPOCH_SUPERSEDED")


async def claim_run(cell: Cell, run_id: str) -> None:
    """What becomes of a retry when it is due."""
    key = ids.parse_run_id(run_id)
    assert key is not None
    row = await cell.store.get_run(cell.api.tenant, key)
    assert row is not None
    member = Member(
        tenant_id=cell.api.tenant,
        parent_id=key.parent_id,
        scheduled_for=int(key.scheduled_for.timestamp()),
        ordinal=key.ordinal,
        is_run=True,
        priority=row.priority,
        due_ms=0,
        shard=ids.shard_of(key.parent_id),
    )

    async def ready() -> bool:
        await cell.claim_members([member])
        found = await cell.store.get_run(cell.api.tenant, key)
        return found is not None and found.state == "READY"

    await eventually(ready)


async def offered(cell: Cell, **more: Any) -> Any:
    """A job whose run is READY."""
    job = await task_job(cell.api, **more)
    await cell.claimable(job["job_id"])
    assert await cell.claim(job["job_id"]) == []  # nobody is to call it
    return job


async def poll(api: Api, queue: str = QUEUE, **more: Any) -> Any:
    body = {"worker_id": "w-1", "wait_seconds": 0, **more}
    return (await api.ok("POST", f"/v1/task-queues/{queue}/tasks:poll", body))["tasks"]


async def one(cell: Cell, **more: Any) -> Any:
    await offered(cell, **more)
    (task,) = await poll(cell.api)
    return task


async def test_a_long_result_is_kept_to_its_beginning(running: Cell) -> None:
    """Of a job's run nobody reads more; alone and in bulk."""
    api = running.api
    for path in ("/v1/runs/{}:complete", "/v1/runs:complete"):
        task = await one(running)
        end = {"epoch": task["epoch"], "outcome": "SUCCEEDED", "result": "x" * 70_000}
        body = end if "{}" in path else {"items": [end | {"run_id": task["run_id"]}]}
        for _ in range(2):
            await api.ok("POST", path.format(task["run_id"]), body)
        run = await api.get(f"/v1/runs/{task['run_id']}")
        assert (run["state"], len(run["attempts"][0]["body"])) == ("SUCCEEDED", 4096)


async def test_the_life_of_a_task(running: Cell) -> None:
    api = running.api
    job = await offered(running)
    assert job["target"] == {"type": "TASK_QUEUE", "task_queue": QUEUE, "lease_seconds": 60}
    (waiting,) = (await api.get(f"/v1/runs?job_id={job['job_id']}"))["items"]
    assert (waiting["state"], waiting["target_id"]) == ("READY", f"queue:{QUEUE}")
    (task,) = await poll(api)
    assert task["payload"] == {"n": 1}
    assert task["run_id"] == task["idempotency_key"] == waiting["run_id"]
    assert (task["attempt"], task["heartbeat_every_seconds"]) == (1, 20.0)
    assert await poll(api) == []
    path = f"/v1/runs/{task['run_id']}"
    beat = await api.ok("POST", path + ":heartbeat", {"epoch": task["epoch"], "progress": {"done": 3}})
    assert beat["cancel_requested"] is False
    assert beat["lease_expires_at"] > task["lease_expires_at"]
    run = await api.get(path)
    assert (run["state"], run["worker_id"], run["progress"]) == ("RUNNING", "w-1", {"done": 3})
    end = {"epoch": task["epoch"], "outcome": "SUCCEEDED", "result": {"rows": 7}}
    ended = await api.ok("POST", path + ":complete", end)
    assert (ended["state"], ended["attempt"], ended["next_attempt_at"]) == ("SUCCEEDED", 1, None)
    assert await api.ok("POST", path + ":complete", end) == ended
    run = await api.get(path)
    (attempt,) = run["attempts"]
    assert (run["state"], attempt["host"], attempt["body"]) == ("SUCCEEDED", "w-1", '{"rows":7}')
    other = await superseded(api, path + ":complete", end | {"outcome": "FAILED"})
    assert other["reason"] == "EPOCH_SUPERSEDED"


async def test_a_task_carries_the_trace_of_whoever_asked(running: Cell) -> None:
    api = running.api
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = {"schedule": {"type": "NOW"}, "target": {"type": "TASK_QUEUE", "task_queue": QUEUE}}
    sent = {"traceparent": caller, "tracestate": "a=1, b=2"}
    job = await api.ok("POST", "/v1/jobs", body, status=201, headers=sent)
    await running.claimable(job["job_id"])
    await running.claim(job["job_id"])
    (task,) = await poll(api)
    assert (task["traceparent"][:36], task["tracestate"]) == (caller[:36], "a=1,b=2")
    assert task["traceparent"][36:52] != caller[36:52]
    own = await one(running)
    assert (own["traceparent"][:36] != caller[:36], own["tracestate"]) == (True, None)


async def test_a_stale_epoch_changes_nothing(running: Cell) -> None:
    api = running.api
    task = await one(running)
    path = f"/v1/runs/{task['run_id']}"
    await api.ok("POST", path + ":release", {"epoch": task["epoch"]})
    (again,) = await poll(api, worker_id="w-2")
    assert again["epoch"] > task["epoch"]
    assert again["attempt"] == 1  # a release costs none
    stale = {"epoch": task["epoch"]}
    for verb, more in (("heartbeat", {}), ("complete", {"outcome": "SUCCEEDED"}), ("release", {})):
        refused = await superseded(api, f"{path}:{verb}", stale | more)
        assert refused["reason"] == "EPOCH_SUPERSEDED"
    run = await api.get(path)
    assert (run["state"], run["epoch"], run["worker_id"]) == ("RUNNING", again["epoch"], "w-2")


async def test_failures_are_tried_again_and_end_in_the_dlq(running: Cell) -> None:
    api = running.api
    policy = {"max_attempts": 2, "initial_backoff_seconds": 0, "max_backoff_seconds": 0}
    task = await one(running, retry_policy=policy)
    path = f"/v1/runs/{task['run_id']}:complete"
    failed = {"epoch": task["epoch"], "outcome": "FAILED", "error": "disk full"}
    retried = await api.ok("POST", path, failed)
    assert retried["state"] == "RETRY_WAIT"
    assert retried["next_attempt_at"] is not None
    assert await api.ok("POST", path, failed) == retried
    run_id = task["run_id"]
    await claim_run(running, run_id)
    (second,) = await poll(api)
    assert (second["run_id"], second["attempt"]) == (run_id, 2)
    assert await api.ok("POST", path, failed) == retried  # still what the first claim was answered
    last = await api.ok("POST", path, failed | {"epoch": second["epoch"]})
    assert last["state"] == "FAILED"
    letters = await api.get(f"/v1/dlq?target=queue:{QUEUE}")
    assert [(i["run_id"], i["error"]) for i in letters["items"]] == [(run_id, "disk full")]
    hopeless = await one(running)
    end = {"epoch": hopeless["epoch"], "outcome": "FAILED", "error": "bad input", "retryable": False}
    ended = await api.ok("POST", f"/v1/runs/{hopeless['run_id']}:complete", end)
    assert ended["state"] == "FAILED"


async def test_cancelling(running: Cell) -> None:
    api = running.api
    job = await offered(running)
    (waiting,) = (await api.get(f"/v1/runs?job_id={job['job_id']}"))["items"]
    gone = await api.ok("POST", f"/v1/runs/{waiting['run_id']}:cancel")
    assert gone["state"] == "CANCELLED"
    assert await poll(api) == []
    for outcome, state in (("CANCELLED", "CANCELLED"), ("SUCCEEDED", "SUCCEEDED_AFTER_CANCEL")):
        task = await one(running)
        path, epoch = f"/v1/runs/{task['run_id']}", {"epoch": task["epoch"]}
        if outcome == "CANCELLED":
            await api.problem(
                "POST", path + ":complete", epoch | {"outcome": outcome}, status=409, code="CONFLICT"
            )
        await api.ok("POST", path + ":cancel")
        assert (await api.ok("POST", path + ":heartbeat", epoch))["cancel_requested"] is True
        ended = await api.ok("POST", path + ":complete", epoch | {"outcome": outcome})
        assert ended["state"] == state
        assert await api.ok("POST", path + ":complete", epoch | {"outcome": outcome}) == ended
    task = await one(running)
    path = f"/v1/runs/{task['run_id']}"
    await api.ok("POST", path + ":cancel")
    await api.ok("POST", path + ":release", {"epoch": task["epoch"]})
    assert (await api.get(path))["state"] == "CANCELLED"


async def test_order_and_shares(running: Cell) -> None:
    api = running.api
    low = await offered(running, priority="LOW")
    first = await offered(running)
    second = await offered(running)
    high = await offered(running, priority="HIGH")
    tasks = await poll(api, max_tasks=3)
    assert [t["job_id"] for t in tasks] == [j["job_id"] for j in (high, first, second)]
    assert [t["job_id"] for t in await poll(api, max_tasks=5)] == [low["job_id"]]


async def test_many_in_bulk(running: Cell) -> None:
    api = running.api
    for _ in range(3):
        await offered(running)
    tasks = await poll(api, max_tasks=10)
    assert len(tasks) == 3
    held = [{"run_id": t["run_id"], "epoch": t["epoch"]} for t in tasks]
    wrong = {"run_id": "nothing", "epoch": 1}
    stale = {"run_id": tasks[0]["run_id"], "epoch": 1}
    beats = (await api.ok("POST", "/v1/runs:heartbeat", {"items": [*held, wrong, stale, held[0]]}))["results"]
    assert [b["status"] for b in beats] == [200, 200, 200, 404, 409, 200]  # a repeat is no stranger
    ends = [h | {"outcome": "SUCCEEDED"} for h in held]
    done = (
        await api.ok("POST", "/v1/runs:complete", {"items": [*ends, ends[0], stale | {"outcome": "FAILED"}]})
    )["results"]
    assert [d["status"] for d in done] == [200, 200, 200, 200, 409]
    assert done[3] == done[0]
    assert done[4]["problem"]["reason"] == "EPOCH_SUPERSEDED"


async def test_a_waiting_poll_is_woken_at_once(running: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is announced, and not by a look in case an announcement was lost."""
    monkeypatch.setattr("cells.api.desk.LOOK_SECONDS", 3600.0)
    await running.queue.open()
    api = running.with_engines()  # with a desk of its own
    desk = api.app.state.services.desk
    polls = [asyncio.create_task(poll(api, worker_id=f"w-{n}", wait_seconds=20)) for n in range(2)]
    await eventually(lambda: len(desk) == 2)
    await offered(running)
    await running.queue.announce([(api.tenant, QUEUE)])
    done, still = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    assert [len(p.result()) for p in done] == [1]
    assert len(still) == 1
    desk.close()
    assert [await p for p in still] == [[]]


async def test_a_poll_behind_one_that_found_nothing_is_looked_after_in_a_moment(
    running: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody announces what came meanwhile, and nobody looks by himself."""
    monkeypatch.setattr("cells.api.desk.LOOK_SECONDS", 3600.0)
    monkeypatch.setattr("cells.api.desk.SHORT_SECONDS", 0.3)
    api = running.with_engines()  # with a desk of its own
    assert await poll(api) == []
    job = await offered(running)
    (task,) = await poll(api, wait_seconds=20)
    assert task["job_id"] == job["job_id"]


async def test_who_leaves_loses_nothing(running: Cell) -> None:
    api = running.with_engines()
    desk = api.app.state.services.desk
    poller = Poller(tenant_id=api.tenant, task_queue=QUEUE, worker_id="w-1", count=5)
    gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    left = asyncio.create_task(desk.poll(poller, wait_seconds=20, gone=gone))
    await eventually(lambda: len(desk) == 1)
    gone.set_result(None)
    assert await left == ()
    assert len(desk) == 0
    await offered(running)
    # Gone just as it is served: what was claimed for it is there for the next one.
    assert await desk.poll(poller, wait_seconds=0, gone=gone) == ()
    await eventually(lambda: _got_one(api))


async def _got_one(api: Api) -> bool:
    return len(await poll(api, worker_id="w-2")) == 1


async def test_queues_as_people_see_them(running: Cell) -> None:
    api = running.api
    task = await one(running)
    await offered(running)
    await eventually(lambda: _seen(api))
    (queue,) = (await api.get("/v1/task-queues"))["items"]
    assert (queue["task_queue"], queue["backlog"], queue["leases"], queue["workers"]) == (QUEUE, 1, 1, 1)
    assert (queue["state"], queue["reason"]) == ("OK", None)
    read = await api.get(f"/v1/task-queues/{QUEUE}")
    assert [w["worker_id"] for w in read["seen"]] == ["w-1"]
    assert [lease["run_id"] for lease in read["held"]] == [task["run_id"]]
    await api.problem("GET", "/v1/task-queues/nobody", status=404, code="NOT_FOUND")
    await api.ok("POST", f"/v1/task-queues/{QUEUE}:pause")
    assert await poll(api) == []
    await api.ok("POST", f"/v1/task-queues/{QUEUE}:resume")
    left = await api.ok("POST", f"/v1/task-queues/{QUEUE}/workers:leave", {"worker_id": "w-1"})
    assert left == {"returned": 1}
    assert len(await poll(api, worker_id="w-2", max_tasks=10)) == 2


async def _seen(api: Api) -> bool:
    queues = (await api.get("/v1/task-queues"))["items"]
    return bool(queues and queues[0]["workers"])


async def test_what_is_refused(running: Cell) -> None:
    api = running.api
    await api.with_scopes(Scope.JOBS_WRITE).problem(
        "POST", POLL, {"worker_id": "w"}, status=403, code="FORBIDDEN"
    )
    await api.problem(
        "POST", POLL, {"worker_id": "", "max_tasks": 0, "wait_seconds": 31}, status=422, code="INVALID"
    )
    await api.problem("POST", "/v1/task-queues/-a/tasks:poll", {"worker_id": "w"}, status=422, code="INVALID")
    await api.problem("POST", "/v1/runs/nothing:heartbeat", {"epoch": 1}, status=404, code="NOT_FOUND")
    big = {"epoch": 1, "progress": "x" * 5000}
    task = await one(running)
    await api.problem("POST", f"/v1/runs/{task['run_id']}:heartbeat", big, status=422, code="INVALID")
    at_most: dict[str, Any] = {
        "schedule": {"type": "NOW"},
        "target": {"type": "TASK_QUEUE", "task_queue": "q"},
    }
    refused = await api.problem(
        "POST", "/v1/jobs", at_most | {"delivery": "AT_MOST_ONCE"}, status=422, code="INVALID"
    )
    assert refused["errors"][0]["pointer"] == "/delivery"
    made = await api.ok(
        "POST",
        "/v1/jobs",
        at_most | {"delivery": "AT_MOST_ONCE", "region_policy": "SINGLE_REGION"},
        status=201,
    )
    assert made["delivery"] == "AT_MOST_ONCE"
    assert datetime.now(UTC) - datetime.fromisoformat(made["created_at"]) < timedelta(minutes=1)


async def test_a_silent_worker_of_a_task_that_may_run_but_once_leaves_it_unknown(running: Cell) -> None:
    once = {"delivery": "AT_MOST_ONCE", "region_policy": "SINGLE_REGION"}
    task = await one(running, lease_seconds=5, **once)
    path = f"/v1/runs/{task['run_id']}"

    async def reaped() -> bool:
        await running.store.reap_pulled(host_id=running.host.host_id, limit=10)
        return bool((await running.api.get(path))["state"] == "UNKNOWN")

    await eventually(reaped, timeout=40)
    run = await running.api.get(path)
    assert run["attempts"][-1]["outcome"] == "LOST"
    (letter,) = (await running.api.get(f"/v1/dlq?target=queue:{QUEUE}"))["items"]
    assert (letter["run_id"], letter["reason"]) == (task["run_id"], "UNKNOWN")
    assert await poll(running.api, worker_id="w-2") == []  # nobody gets it again
    await superseded(running.api, path + ":complete", {"epoch": task["epoch"], "outcome": "SUCCEEDED"})


@pytest.mark.parametrize("state", ["SUSPENDED", "BARRIER"])
async def test_what_is_under_way_may_end_where_nothing_new_begins(running: Cell, state: str) -> None:
    api = running.api
    task, other = await one(running), await one(running)
    await running.place(api.tenant, state=state)
    path = f"/v1/runs/{task['run_id']}"
    await api.ok("POST", path + ":heartbeat", {"epoch": task["epoch"]})
    ended = await api.ok("POST", path + ":complete", {"epoch": task["epoch"], "outcome": "SUCCEEDED"})
    assert ended["state"] == "SUCCEEDED"
    await api.ok("POST", f"/v1/runs/{other['run_id']}:release", {"epoch": other["epoch"]})
    assert (await api.send("POST", POLL, {"worker_id": "w-2", "wait_seconds": 0})).status_code in (403, 421)


async def test_silent_workers_of_a_suspended_tenant_hold_nobody_up(running: Cell) -> None:
    before = await running.store.look_at_leases()
    await one(running)
    assert (await running.store.look_at_leases()).live == before.live + 1
    await running.place(running.api.tenant, state="SUSPENDED")
    assert (await running.store.look_at_leases()).live == before.live


async def test_a_task_that_cannot_be_read_is_passed_over(running: Cell) -> None:
    api = running.api
    stuck = await offered(running)
    good = await offered(running)
    key = ids.decode(ids.JOB, stuck["job_id"])
    async with await psycopg.AsyncConnection.connect(running.database_url) as sql:
        await sql.execute(b"SET LOCAL session_replication_role = replica")  # versions never change
        await sql.execute(b"UPDATE job_versions SET definition = 'x' WHERE job_id = %s", [key])
    (task,) = await poll(api)
    assert task["run_id"].startswith(good["job_id"])
    assert await poll(api) == []
