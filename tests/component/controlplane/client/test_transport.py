"""Both clients over a real connection: retries, lists, errors, time limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controlplane.client import (
    AsyncClockhouse,
    Clockhouse,
    Invalid,
    NotFound,
    Retries,
    Schedule,
    TimedOut,
    TransportError,
    Unavailable,
    UnexpectedAnswer,
)
from tests.component.controlplane.client.conftest import QUICK, Received, Server

JOB = {
    "job_id": "job_1", "status": "SCHEDULED", "version": 1, "schedule": {"type": "NOW"},
    "target": {"target_id": "t"},
}  # fmt: skip
RUN = {"run_id": "r", "job_id": "j", "scheduled_for": "2026-09-28T12:00:00Z", "attempt": 1}
AWAY = (503, {"code": "UNAVAILABLE", "detail": "away"})


def test_what_every_request_carries(server: Server, client: Clockhouse) -> None:
    server.script = [JOB]
    client.jobs.get("job_1")
    (request,) = server.received
    assert (request.method, request.path) == ("GET", "/v1/jobs/job_1")
    assert request.headers["authorization"] == "Bearer ch_live_test"
    assert request.headers["user-agent"].startswith("clockhouse-client/")
    assert "x-tenant-id" not in request.headers
    with Clockhouse(server.url, "ch_op_test", tenant_id="tnt_1") as operator:
        server.script = [JOB]
        operator.jobs.get("job_1")
    assert server.received[-1].headers["x-tenant-id"] == "tnt_1"


def test_a_creation_is_repeated_under_one_key(server: Server, client: Clockhouse) -> None:
    server.script = [AWAY, ConnectionResetError(), (409, {"code": "IDEMPOTENCY_IN_PROGRESS"}), (201, JOB)]
    assert client.jobs.create({"schedule": {"type": "NOW"}}).job_id == "job_1"
    keys = {request.headers["idempotency-key"] for request in server.received}
    assert (len(server.received), len(keys)) == (4, 1)
    server.script = [(201, JOB)]
    client.jobs.create({"schedule": {"type": "NOW"}})
    assert server.received[-1].headers["idempotency-key"] not in keys


@pytest.mark.parametrize("answer", [AWAY, ConnectionResetError(), (500, {"code": "INTERNAL_ERROR"})])
def test_an_edit_is_sent_once(server: Server, client: Clockhouse, answer: Any) -> None:
    server.script = [answer, JOB]
    with pytest.raises((Unavailable, TransportError, Exception)):
        client.jobs.edit("job_1", {"priority": "LOW"}, version=3)
    assert len(server.received) == 1
    assert server.received[0].headers["if-match"] == '"3"'


def test_tries_are_bounded_and_the_last_error_stands(server: Server, client: Clockhouse) -> None:
    server.handler = lambda request: AWAY
    with pytest.raises(Unavailable, match="away"):
        client.jobs.get("job_1")
    assert len(server.received) == QUICK.attempts


def test_retry_after_is_waited_for(server: Server, client: Clockhouse) -> None:
    server.script = [(429, {"code": "QUOTA_EXCEEDED"}, {"Retry-After": "1"}), JOB]
    client.jobs.edit("job_1", {})  # refused before anything was done, so it may be sent again
    first, second = server.received
    assert second.at - first.at >= 1.0


def test_nobody_listens() -> None:
    with (
        Clockhouse("http://127.0.0.1:9", "k", retries=QUICK) as client,
        pytest.raises(TransportError, match="cannot be reached") as caught,
    ):
        client.jobs.edit("job_1", {})
    assert caught.value.sent is False


def test_an_answer_that_does_not_come(server: Server) -> None:
    async def never() -> None:
        await asyncio.sleep(30)

    server.handler = lambda request: never()
    with (
        Clockhouse(server.url, "k", timeout=0.2, retries=Retries(attempts=2, first_seconds=0)) as client,
        pytest.raises(TimedOut),
    ):
        client.jobs.get("job_1")
    assert len(server.received) == 2


def pages(request: Received) -> dict[str, Any]:
    place = int(request.query.get("cursor", "0"))
    items = [{**JOB, "job_id": f"job_{n}"} for n in range(place, place + 2)]
    return {"items": items, "next_cursor": str(place + 2) if place < 4 else None}


def test_a_list_walks_its_pages_when_they_are_needed(server: Server, client: Clockhouse) -> None:
    server.handler = pages
    walk = client.jobs.list(tag="a b", limit=2)
    assert server.received == []
    assert [next(walk).job_id for _ in range(2)] == ["job_0", "job_1"]
    assert len(server.received) == 1
    assert [job.job_id for job in walk] == ["job_2", "job_3", "job_4", "job_5"]
    assert [request.query for request in server.received] == [
        {"tag": "a b", "limit": "2"},
        {"tag": "a b", "limit": "2", "cursor": "2"},
        {"tag": "a b", "limit": "2", "cursor": "4"},
    ]
    page = client.jobs.page(limit=2)
    assert (len(page.items), page.next_cursor) == (2, "2")


def test_refusals_say_every_fault(server: Server, client: Clockhouse) -> None:
    faults = [{"pointer": "/a", "detail": "x"}, {"header": "Idempotency-Key", "detail": "y"}]
    server.script = [
        (422, {"code": "INVALID", "detail": "2 faults", "errors": faults}),
        (404, {"code": "NOT_FOUND"}),
    ]
    with pytest.raises(Invalid) as caught:
        client.schedules.preview(Schedule.now())
    assert [str(fault) for fault in caught.value.faults] == ["a: x", "header Idempotency-Key: y"]
    with pytest.raises(NotFound):
        client.runs.get("job_1:2026-09-28T00:00:00Z")
    server.script = ["<html>proxy</html>"]
    with pytest.raises(UnexpectedAnswer, match="Is the address that of the API"):
        client.tenant.get()


def test_a_redirect_takes_the_key_nowhere(server: Server, client: Clockhouse) -> None:
    server.script = [(307, {}, {"Location": "http://127.0.0.1:9/v1/tenant"})]
    with pytest.raises(UnexpectedAnswer, match="redirect"):
        client.tenant.get()
    assert len(server.received) == 1


def test_waiting_for_a_run(server: Server, client: Clockhouse) -> None:
    server.script = [{**RUN, "state": "READY"}, {**RUN, "state": "RUNNING"}, {**RUN, "state": "FAILED"}]
    run = client.runs.wait("r")
    assert (run.state, run.succeeded) == ("FAILED", False)
    server.handler = lambda request: {**RUN, "state": "RUNNING"}
    with pytest.raises(TimedOut, match=r"r is still RUNNING after 0\.3 s"):
        client.runs.wait("r", timeout=0.3)


async def test_the_async_client_does_the_same(server: Server) -> None:
    async with AsyncClockhouse(server.url, "ch_live_test", retries=QUICK) as client:
        server.script = [AWAY, (201, JOB)]
        assert (await client.jobs.create({"schedule": {"type": "NOW"}})).job_id == "job_1"
        assert len({request.headers["idempotency-key"] for request in server.received}) == 1
        server.handler = pages
        assert [job.job_id async for job in client.jobs.list()] == [f"job_{n}" for n in range(6)]
        server.script = [{**RUN, "state": "RUNNING"}, {**RUN, "state": "SUCCEEDED"}]
        assert (await client.runs.wait("r")).succeeded
        server.script = [(422, {"code": "INVALID", "detail": "d"})]
        with pytest.raises(Invalid):
            await client.jobs.put_by_key("k", {"schedule": {}})


def test_both_clients_offer_the_same() -> None:
    from controlplane.client import aio, sync

    names = [
        "Jobs",
        "Schedules",
        "Runs",
        "Targets",
        "DeadLetters",
        "Stats",
        "Events",
        "Tenant",
        "Members",
        "ApiKeys",
    ]
    for name in [*names, "Usage", "CostReports"]:
        one, other = getattr(sync, name), getattr(aio, f"Async{name}")
        assert {n for n in vars(one) if n[0] != "_"} == {n for n in vars(other) if n[0] != "_"}, name
