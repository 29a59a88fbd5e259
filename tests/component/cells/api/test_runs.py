"""Runs, dead letters, statistics, previews."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cells.api import documents
from cells.contract import Scope
from cells.domain.run import RunState
from tests.component.cells.api.harness import Api, Cell
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


async def triggered(cell: Cell, job_id: str) -> Any:
    return await cell.api.ok("POST", f"/v1/jobs/{job_id}:trigger", status=201)


async def test_the_life_of_a_run(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, schedule={"type": "NOW"})
    (claim,) = await running.claim(job["job_id"])
    path = f"/v1/runs/{claim.key}"
    under_way = await api.get(path)
    assert (under_way["state"], under_way["outcome"], under_way["epoch"]) == ("RUNNING", None, claim.epoch)
    await running.complete(claim, RunState.SUCCEEDED)
    done = await api.get(path)
    assert done["run_id"] == done["idempotency_key"] == str(claim.key)
    assert (done["job_id"], done["state"], done["outcome"]) == (job["job_id"], "SUCCEEDED", "SUCCEEDED")
    assert (done["attempt"], done["http_status"], done["target_id"]) == (1, 200, TARGET)
    (attempt,) = done["attempts"]
    assert (attempt["outcome"], attempt["body"]) == ("SUCCEEDED", "what the target said")
    split = done["where_the_time_went"]
    assert split["window_ms"] < 1000
    assert all(isinstance(split[name], int) for name in ("retries_ms", "slot_ms", "run_ms"))
    reader = api.with_scopes(Scope.JOBS_READ)
    hidden = (await reader.get(path))["attempts"][0]
    assert "body" not in hidden
    assert hidden["body_hidden"] is True
    await api.problem("POST", path + ":cancel", status=409, code="CONFLICT")


async def test_cancelling_runs(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    waiting = await triggered(running, job["job_id"])
    cancelled = await api.ok("POST", f"/v1/runs/{waiting['run_id']}:cancel")
    assert (cancelled["state"], cancelled["next_attempt_at"]) == ("CANCELLED", None)
    assert await api.ok("POST", f"/v1/runs/{waiting['run_id']}:cancel") == cancelled
    now = await api.job(TARGET, schedule={"type": "NOW"})
    (claim,) = await running.claim(now["job_id"])
    asked = await api.ok("POST", f"/v1/runs/{claim.key}:cancel")
    assert (asked["state"], asked["cancel_requested"]) == ("RUNNING", True)
    assert await api.ok("POST", f"/v1/runs/{claim.key}:cancel") == asked
    for unknown in (f"{job['job_id']}:2026-01-01T00:00:00Z", f"{job['job_id']}:2026-01-01T00:00:00Z:3"):
        await api.problem("GET", f"/v1/runs/{unknown}", status=404, code="NOT_FOUND")
        await api.problem("POST", f"/v1/runs/{unknown}:cancel", status=404, code="NOT_FOUND")
    for no_id in ("", ":2026-01-01", ":2026-01-01T00:00:00Z:0", ":2026-01-01T00:00:00Z:01", ":x"):
        await api.problem("GET", f"/v1/runs/{job['job_id']}{no_id}", status=404, code="NOT_FOUND")


async def test_a_run_id_may_be_percent_encoded(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    job = await running.api.job(TARGET)
    run = await triggered(running, job["job_id"])
    quoted = run["run_id"].replace(":", "%3A")
    assert (await running.api.get(f"/v1/runs/{quoted}"))["run_id"] == run["run_id"]


async def test_listing_runs(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job, other = await api.job(TARGET), await api.job(TARGET)
    mine = [(await triggered(running, job["job_id"]))["run_id"] for _ in range(5)]
    await triggered(running, other["job_id"])
    await api.ok("POST", f"/v1/runs/{mine[0]}:cancel")

    async def found(query: str) -> list[str]:
        listed: list[str] = []
        cursor = ""
        while True:
            page = await api.get(f"/v1/runs?{query}{cursor}")
            listed += [item["run_id"] for item in page["items"]]
            if page["next_cursor"] is None:
                return listed
            cursor = f"&cursor={page['next_cursor']}"

    assert sorted(await found(f"job_id={job['job_id']}&limit=2")) == sorted(mine)
    assert len(await found("limit=4")) == len(set(await found("limit=200"))) == 6
    assert await found("state=CANCELLED") == [mine[0]]
    assert await found("state=UNKNOWN,CANCELLED") == [mine[0]]
    assert len(await found("state=DUE,CANCELLED&limit=2")) == 6
    # The same choice in another order is the same list.
    page = await api.get("/v1/runs?state=DUE,CANCELLED&limit=2")
    rest = await api.get(f"/v1/runs?state=CANCELLED,DUE&limit=4&cursor={page['next_cursor']}")
    assert len(rest["items"]) == 4
    for wrong in ("DUE,", "due", "DUE,MOON", ",", ""):
        faults = await api.problem("GET", f"/v1/runs?state={wrong}", status=422, code="INVALID")
        assert [fault["parameter"] for fault in faults["errors"]] == ["state"], wrong
    assert len(await found("target=tgt_email&state=DUE")) == 5
    assert await found("target=tgt_other") == []
    assert await found("scheduled_until=2026-01-01T00:00:00Z") == []
    assert len(await found("scheduled_from=2026-01-01T00:00:00Z")) == 6


async def test_jobs_are_listed_with_their_last_run(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    # Of long ago, of now after one of long ago, and never.
    old = await api.job(TARGET, schedule={"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"})
    (claim,) = await running.claim(old["job_id"])
    await running.complete(claim, RunState.SUCCEEDED)
    both = await api.job(TARGET, schedule={"type": "ONCE", "run_at": "2026-01-06T09:00:00Z"})
    (earlier,) = await running.claim(both["job_id"])
    await running.complete(earlier, RunState.FAILED, reason="FAILED", fingerprint="f")
    newest = await triggered(running, both["job_id"])
    never = await api.job(TARGET)
    page = await api.get("/v1/jobs?include=last_run")
    last = {item["job_id"]: item["last_run"] for item in page["items"]}
    assert last[never["job_id"]] is None
    assert (last[old["job_id"]]["run_id"], last[old["job_id"]]["state"]) == (str(claim.key), "SUCCEEDED")
    assert (last[both["job_id"]]["run_id"], last[both["job_id"]]["state"]) == (newest["run_id"], "DUE")
    assert all("last_run" not in item for item in (await api.get("/v1/jobs"))["items"])
    await api.problem("GET", "/v1/jobs?include=moon", status=422, code="INVALID")
    # A page goes on with or without them.
    first = await api.get("/v1/jobs?include=last_run&limit=2")
    (rest,) = (await api.get(f"/v1/jobs?limit=2&cursor={first['next_cursor']}"))["items"]
    assert rest["job_id"] == old["job_id"]


async def test_runs_are_found_by_when_they_ended_and_were_due(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    # Scheduled long before they end: the list of that hour does not hold them, that of the end does.
    job = await api.job(TARGET, schedule={"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"})
    (claim,) = await running.claim(job["job_id"])
    await running.complete(claim, RunState.SUCCEEDED)
    by_hand = await api.job(TARGET)
    run = await triggered(running, by_hand["job_id"])
    ended = await api.ok("POST", f"/v1/runs/{run['run_id']}:cancel")
    before, end, after = (
        documents.instant(datetime.fromisoformat(ended["finished_at"]) + timedelta(seconds=n))
        for n in (-60, 0, 60)
    )

    async def found(query: str) -> tuple[list[str], str | None]:
        page = await api.get(f"/v1/runs?{query}")
        return [item["run_id"] for item in page["items"]], page["looked_back_to"]

    day_before = documents.instant(datetime.fromisoformat(before or "") - timedelta(days=1))
    assert await found(f"finished_from={before}&finished_until={after}") == ([run["run_id"]], day_before)
    both = await found(f"finished_from={before}&finished_until={after}&scheduled_from=2026-01-01T00:00:00Z")
    assert both == ([run["run_id"], str(claim.key)], "2026-01-01T00:00:00Z")
    assert (await found(f"finished_from={after}"))[0] == []
    assert (await found(f"finished_until={before}"))[0] == []
    assert await found(f"finished_until={after}&state=SUCCEEDED") == ([str(claim.key)], None)
    assert (await found(f"finished_from={before}&finished_until={end}"))[0] == []
    # Its time was past when the job was made: it was due at once.
    due = datetime.fromisoformat((await api.get(f"/v1/runs/{claim.key}"))["due_at"])
    second = [documents.instant(due + timedelta(seconds=n)) for n in (-1, 1)]
    due_then = f"due_from={second[0]}&due_until={second[1]}&state=SUCCEEDED"
    assert (await found(due_then))[0] == []
    assert (await found(f"{due_then}&scheduled_from=2026-01-01T00:00:00Z"))[0] == [str(claim.key)]
    wrong = f"finished_from={after}&finished_until={before}&due_from={end}&due_until={end}&job_id=x"
    faults = await api.problem("GET", f"/v1/runs?{wrong}", status=422, code="INVALID")
    assert {fault["parameter"] for fault in faults["errors"]} == {"finished_from", "due_from", "job_id"}
    first = "finished_from=1970-01-01T00:00:00Z"
    assert len((await found(first))[0]) == 2
    cursor = (await api.get(f"/v1/runs?{first}&limit=1"))["next_cursor"]
    assert (await found(f"{first}&limit=1&cursor={cursor}"))[0] == [str(claim.key)]
    await api.problem("GET", f"/v1/runs?limit=1&cursor={cursor}", status=422, code="INVALID")


async def test_dead_letters_are_grouped(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    assert await api.get("/v1/dlq") == {"groups": [], "truncated": False, "items": [], "next_cursor": None}
    failed = []
    for i in range(3):
        job = await api.job(TARGET, schedule={"type": "NOW"})
        (claim,) = await running.claim(job["job_id"])
        fingerprint = "tgt_email/404" if i else "tgt_email/500"
        await running.complete(claim, RunState.FAILED, reason="FAILED", fingerprint=fingerprint)
        failed.append((job["job_id"], str(claim.key)))
    first = await api.get("/v1/dlq?limit=2")
    groups = [(group["fingerprint"], group["count"]) for group in first["groups"]]
    assert groups == [("tgt_email/404", 2), ("tgt_email/500", 1)]
    plain = await api.get("/v1/dlq?limit=2&groups=false")
    assert (plain["groups"], plain["items"], plain["truncated"]) == ([], first["items"], False)
    rest = await api.get(f"/v1/dlq?limit=2&cursor={first['next_cursor']}")
    assert (rest["groups"], rest["next_cursor"]) == ([], None)
    items = first["items"] + rest["items"]
    assert [(item["job_id"], item["run_id"]) for item in items] == failed[::-1]
    assert {item["reason"] for item in items} == {"FAILED"}
    assert items[0]["http_status"] == 404
    only = await api.get("/v1/dlq?fingerprint=tgt_email/500")
    assert [item["run_id"] for item in only["items"]] == [failed[0][1]]
    assert (await api.get("/v1/dlq?target=tgt_other"))["items"] == []


async def test_statistics(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    empty = await api.get("/v1/stats")
    assert empty["minutes"] == []
    assert (empty["total"]["started"], empty["total"]["lag_p99_ms"]) == (0, None)
    for state in (RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.FAILED):
        job = await api.job(TARGET, schedule={"type": "NOW"})
        (claim,) = await running.claim(job["job_id"])
        await running.complete(claim, state, reason="FAILED", fingerprint="f")

    async def folded() -> dict[str, Any] | None:
        """Rows become final when no transaction of the server is older, and some are not ours."""
        await running.store.fold_stats()
        read: dict[str, Any] = await api.get("/v1/stats")
        return read if read["total"]["failed"] == 1 else None

    read = await eventually(folded)
    assert (read["total"]["succeeded"], read["total"]["failed"]) == (2, 1)
    assert sum(minute["succeeded"] for minute in read["minutes"]) == 2
    assert 0 < read["total"]["lag_p50_ms"] <= read["total"]["lag_p99_ms"] <= read["total"]["lag_max_ms"] == 3
    assert read["total"]["lag_mean_ms"] == 3
    for query, name in (
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("since=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00Z", "since"),
        ("since=yesterday", "since"),
        ("until=9999-12-31T23:59:59Z", "until"),
        ("by=job", "by"),
    ):
        problem = await api.problem("GET", f"/v1/stats?{query}", status=422, code="INVALID")
        assert [fault["parameter"] for fault in problem["errors"]] == [name]


async def test_previews(api: Api) -> None:
    path = "/v1/schedules:preview"
    new_york = {"type": "CRON", "cron": "30 1 * * *", "time_zone": "America/New_York"}
    shown = await api.ok("POST", path, {"schedule": new_york, "after": "2026-10-31T05:30:00Z", "count": 2})
    assert [item["at"] for item in shown["occurrences"]] == ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]
    assert shown["occurrences"][0]["local"] == "2026-11-01T01:30:00-04:00"
    assert shown["transitions"][0] == {
        "at": "2026-11-01T06:00:00Z",
        "from_offset": "-04:00",
        "to_offset": "-05:00",
        "kind": "overlap",
        "local": "2026-11-01T01:00:00-05:00",
        "note": "One time happens twice: it runs the first time.",
    }
    assert shown["transitions"][1]["kind"] == "gap"
    berlin = {"type": "CRON", "cron": "30 2 * * *", "time_zone": "Europe/Berlin"}
    gap = await api.ok("POST", path, {"schedule": berlin, "after": "2026-03-28T12:00:00Z", "count": 1})
    assert gap["occurrences"][0]["at"] == "2026-03-29T01:00:00Z"
    assert "gap" in gap["occurrences"][0]["note"]
    default = await api.ok("POST", path, {"schedule": {"type": "RATE", "every_seconds": 60}})
    assert len(default["occurrences"]) == 10
    assert default["transitions"] == []
    over = new_york | {"end_at": "2026-01-03T00:00:00Z"}
    past = await api.ok("POST", path, {"schedule": over, "after": "2026-01-01T00:00:00Z"})
    assert [item["at"] for item in past["occurrences"]] == ["2026-01-01T06:30:00Z", "2026-01-02T06:30:00Z"]
    await api.problem("POST", path, {"schedule": over}, status=422, code="INVALID")
    now = await api.ok("POST", path, {"schedule": {"type": "NOW"}, "count": 5})
    assert len(now["occurrences"]) == 1
    for wrong, pointers in (
        ({"schedule": {"type": "CRON", "cron": "* * * * * *"}, "count": 101}, {"/schedule/cron", "/count"}),
        ({"schedule": {"type": "CRON", "cron": "0 0 30 2 *"}}, {"/schedule/cron"}),
        ({"schedule": new_york, "after": "2026-10-31T05:30:00"}, {"/after"}),
        ({"schedule": new_york, "after": "0001-01-01T00:00:00+14:00"}, {"/after"}),
        ({"schedule": new_york | {"time_zone": "../../etc/passwd"}}, {"/schedule/time_zone"}),
        ({}, {"/schedule"}),
    ):
        problem = await api.problem("POST", path, wrong, status=422, code="INVALID")
        assert {fault["pointer"] for fault in problem["errors"]} == pointers


async def test_the_preview_says_what_creation_does(api: Api) -> None:
    await api.target(target_id=TARGET)
    for schedule in (
        {"type": "CRON", "cron": "*/7 3 * * 1-5", "time_zone": "Australia/Lord_Howe"},
        {"type": "ONCE", "run_at": "2027-03-28T02:30:00", "time_zone": "Europe/Berlin"},
        {"type": "RATE", "every_seconds": 86_400, "start_at": "2027-01-01T00:00:00Z"},
    ):
        shown = await api.ok("POST", "/v1/schedules:preview", {"schedule": schedule, "count": 1})
        job = await api.job(TARGET, schedule=schedule)
        assert job["next_run_at"] == shown["occurrences"][0]["at"]
        assert job["next_run_local"] == shown["occurrences"][0]["local"] or schedule["type"] == "RATE"
    assert datetime.now(UTC) < datetime.fromisoformat(job["next_run_at"])
