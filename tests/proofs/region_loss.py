"""region-loss: the region that owns a cell dies (-9) amid its due jobs; another one takes the cell over.

It owns it within 27 s and is on schedule within two minutes; every job runs, what was in flight is repeated
under its old key only, every region's API answers. For the last seconds nobody received what the region
wrote: it comes back fenced, what only it had done is listed with every repeat, what people had decided there
is done again once, and it follows. So a second time with the region that took over, and a third time with the
network cut instead: the region works on alone until its lease ends.

What is kept in the tenant's home region alone (SINGLE_REGION) is 503 HOME_REGION_DOWN while that is down,
runs when it is back, and goes on there whoever owns the cell."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from controlplane.regions.deciding import Act
from tests.api import Api
from tests.recorder import Recorder
from tests.regional import RegionalStack
from tests.waiting import eventually_sync

CELL = "shared-1"
JOBS = 600
#: How regions are lost, one after the other.
ROUNDS = ("KILL", "KILL", "CUT")
#: The jobs are spread over so long: some are due before, some while nobody owns the cell, some after.
SPREAD_SECONDS = 90
OWNER_SECONDS, SCHEDULE_SECONDS = 27.0, 120.0
#: A run that starts so soon after it was due is on schedule.
ON_TIME_SECONDS = 2.0
#: For so long nobody receives what the region writes before it is lost.
ALONE_SECONDS = 3.0
CALL_SECONDS = 0.05
#: The demo tenant's home, and how many jobs are kept there alone.
HOME, AT_HOME = "east", 20
_BATCH = 200


@dataclass(kw_only=True)
class Alone:
    """What people decided in the region while nobody received it."""

    created: list[str] = field(default_factory=list)  # jobs
    edited: str = ""
    cancelled: str = ""


def main(jobs: int = JOBS, rounds: int = len(ROUNDS)) -> dict[str, Any]:
    environment = {"CLOCKHOUSE_CELLS": CELL, "CLOCKHOUSE_DEMO_JOBS": "0"}
    with (
        Recorder(delay_seconds=CALL_SECONDS) as target,
        RegionalStack(environment=environment) as stack,
    ):
        seen = [lose_a_region(stack, target, jobs=jobs, cut=how == "CUT") for how in ROUNDS[:rounds]]
    return {"holds": all(one["holds"] for one in seen), "rounds": seen}


def lose_a_region(stack: RegionalStack, target: Recorder, *, jobs: int, cut: bool = False) -> dict[str, Any]:
    first = stack.owner(CELL)
    if first is None:
        raise AssertionError("nobody owns the cell")
    others = [region for region in stack.regions if region != first]
    eventually_sync(lambda: all(stack.keeper(CELL, region).get("ready") for region in others), timeout=120)
    api = stack.api_in(others[0])
    target_id = api.register_target(target.url)["target_id"]
    before = len(_entries(api))
    known = [_far_ahead(api, target_id) for _ in range(2)]
    expected = _create(api, target_id, jobs=jobs)
    at_home = _create(api, target_id, jobs=AT_HOME, region_policy="SINGLE_REGION")
    home_is_down = first == HOME and not cut
    eventually_sync(lambda: len(expected & target.keys().keys()) >= jobs // 10, timeout=180)

    keeper = f"keeper-{CELL}-{first}"
    alone_at = time.time()
    with _nobody_receives(stack, first):
        if cut:
            lost_at = time.time()
            stack.stop(keeper, kill=True)  # as one that reaches no ownership store, it renews nothing
            alone = _decide(stack.api_in(first), target_id, known)
        else:
            alone = _decide(stack.api_in(first), target_id, known)
            until = time.monotonic() + ALONE_SECONDS
            eventually_sync(lambda: time.monotonic() > until, timeout=ALONE_SECONDS + 5)
            lost_at = time.time()
            stack.region_dies(first)
        down_at = time.time()
        owner = eventually_sync(lambda: stack.owner(CELL), timeout=120)
    owned_at = time.time()
    eventually_sync(lambda: expected <= target.keys().keys(), timeout=300)
    on_time = _on_schedule(stack, owner, after=owned_at)
    answers = {region: stack.api_in(region).http.get("/v1/jobs").status_code for region in others}
    away = _away(api, at_home) if home_is_down else HOME

    if cut:
        stack.start(keeper)
    else:
        stack.region_returns(first)
    back_at = time.time()
    eventually_sync(
        lambda: (
            stack.keeper(CELL, first).get("act") == Act.FOLLOW.value
            and stack.keeper(CELL, first).get("ready")
        ),
        timeout=240,
    )
    api = stack.api_in(owner)
    eventually_sync(lambda: at_home <= target.keys().keys(), timeout=180)

    def judged() -> list[dict[str, Any]] | None:
        report = _entries(api)[before:]
        return report if report and all(one["outcome"] != "WAITING" for one in report) else None

    report = eventually_sync(judged, timeout=120)
    repeats = {key for key, count in target.keys().items() if count > 1} & expected
    rate = jobs / SPREAD_SECONDS
    # Until it was down, or its lease had ended; the second is what is under way at either end.
    allowed = rate * ((OWNER_SECONDS if cut else 0) + (down_at - alone_at) + CALL_SECONDS + 1)
    listed = {one["idempotency_key"] for one in report if one["outcome"] in ("REPEATED", "IMPORTED")}
    done_again = _done_again(api, alone)
    seconds = {
        "owner_after": round(owned_at - lost_at, 1),
        "on_schedule_after": round(on_time - lost_at, 1),
    }
    return {
        "holds": seconds["owner_after"] <= OWNER_SECONDS + (down_at - lost_at)
        and seconds["on_schedule_after"] <= SCHEDULE_SECONDS
        and set(answers.values()) == {200}
        and stack.owner(CELL) == owner
        and away == HOME
        and repeats <= listed
        and len(repeats) <= allowed
        and all(done_again.values()),
        **seconds,
        "killing_took": round(down_at - lost_at, 1),
        "follows_after": round(time.time() - back_at, 1),
        "jobs": jobs,
        "never_called": len(expected - target.keys().keys()),
        "repeats": len(repeats),
        "repeats_allowed": round(allowed),
        "repeats_not_listed": len(repeats - listed),
        "entries": dict(Counter(f"{one['kind']} {one['outcome']}" for one in report)),
        "done_again": done_again,
        "at_home": len(at_home & target.keys().keys()),
        "away": away if home_is_down else None,
        "from": first,
        "to": owner,
        "answers": answers,
    }


@contextmanager
def _nobody_receives(stack: RegionalStack, region: str) -> Iterator[None]:
    """The region's log goes nowhere meanwhile: its server refuses those that come for it."""
    file = stack.home.folder / f"postgres-{CELL}-{region}" / "data" / "pg_hba.conf"
    before = file.read_text()
    file.write_text(f"host replication all 0.0.0.0/0 reject\n{before}")
    with psycopg.connect(stack.site(CELL, region)["database_url"], autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
    try:
        yield
    finally:
        file.write_text(before)


def _decide(api: Api, target_id: str, known: list[str]) -> Alone:
    """Some new jobs, and what is decided of two that everybody knows."""
    alone = Alone(edited=known[0], cancelled=known[1])
    alone.created = [_far_ahead(api, target_id) for _ in range(3)]
    api.call("PATCH", f"/v1/jobs/{alone.edited}", {"name": "edited alone"})
    api.call("DELETE", f"/v1/jobs/{alone.cancelled}")
    return alone


def _done_again(api: Api, alone: Alone) -> dict[str, bool]:
    edited, cancelled = (api.get(f"/v1/jobs/{job}") for job in (alone.edited, alone.cancelled))
    return {
        "created": all(api.http.get(f"/v1/jobs/{job}").status_code == 200 for job in alone.created),
        "edited": (edited["name"], edited["version"]) == ("edited alone", 2),
        "cancelled": cancelled["status"] == "CANCELLED",
    }


def _away(api: Api, at_home: set[str]) -> str:
    """The region that is named as down where another is asked for a job that only it has, and for a list."""
    answer = api.http.get(f"/v1/jobs/{min(at_home).partition(':')[0]}")
    told, listed = answer.json(), api.get("/v1/jobs")
    if (answer.status_code, told.get("code")) != (503, "HOME_REGION_DOWN"):
        return f"{answer.status_code} {told.get('code')}"
    return (
        str(told["region"]) if listed.get("unreachable_regions") == [told["region"]] else str(listed.keys())
    )


def _entries(api: Api) -> list[dict[str, Any]]:
    """The whole reconciliation report of the demo tenant."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = api.get("/v1/regions/reconciliation", limit=200, **({"cursor": cursor} if cursor else {}))
        found += page["items"]
        cursor = page["next_cursor"] or ""
        if not cursor:
            return found


def _far_ahead(api: Api, target_id: str) -> str:
    at = datetime.now(UTC) + timedelta(days=1)
    job = api.create_job(
        {
            "schedule": {"type": "ONCE", "run_at": at.strftime("%Y-%m-%dT%H:%M:%SZ")},
            "target": {"type": "HTTP", "target_id": target_id},
        }
    )
    return str(job["job_id"])


def create(stack: RegionalStack, region: str, target: Recorder, *, jobs: int) -> set[str]:
    """Jobs through the API of a region that does not own the cell; their idempotency keys."""
    api = stack.api_in(region)
    return _create(api, api.register_target(target.url)["target_id"], jobs=jobs)


def _create(api: Api, target_id: str, *, jobs: int, region_policy: str = "HOME_ASYNC") -> set[str]:
    begin = (datetime.now(UTC) + timedelta(seconds=10 + jobs / 500)).replace(microsecond=0)
    keys: set[str] = set()
    for start in range(0, jobs, _BATCH):
        ats = [
            (begin + timedelta(seconds=number * SPREAD_SECONDS // jobs)).strftime("%Y-%m-%dT%H:%M:%SZ")
            for number in range(start, min(jobs, start + _BATCH))
        ]
        answer = api.call(
            "POST",
            "/v1/jobs:batch",
            {
                "jobs": [
                    {
                        "schedule": {"type": "ONCE", "run_at": at},
                        "target": {"type": "HTTP", "target_id": target_id},
                        "dispatch_window_seconds": 1,
                        "region_policy": region_policy,
                    }
                    for at in ats
                ]
            },
        )
        keys |= {f"{one['job_id']}:{at}" for one, at in zip(answer["results"], ats, strict=True)}
    return keys


def _on_schedule(stack: RegionalStack, region: str, *, after: float) -> float:
    """From when on every run started on time, by the new owner's own records (seconds since 1970)."""
    with psycopg.connect(stack.site(CELL, region)["database_url"]) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM max(started_at)) FROM runs"
            " WHERE started_at - due_at > %s * interval '1 second' AND started_at >= to_timestamp(%s)",
            (ON_TIME_SECONDS, after),
        ).fetchone()
    late = row[0] if row is not None else None
    return after if late is None else float(late)
