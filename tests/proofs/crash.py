"""crash: both cell hosts are killed (-9) in the middle of 2,000 due jobs and their Valkeys flushed.
After the restart every occurrence has one SUCCEEDED run within 60 s, the target saw every key,
and the keys it saw twice are only those that were in flight at the kill."""

from __future__ import annotations

import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import redis

from cells.domain.ids import RunKey, run_id
from tests.api import Api
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

#: Jobs over all cells. Their windows spread them, so that the kill falls into the middle.
JOBS = 2000
WINDOW_SECONDS = 8
DEADLINE_SECONDS = 60


def main(jobs: int = JOBS) -> dict[str, Any]:
    with Recorder(delay_seconds=0.05) as target, Stack() as stack:
        return run_crash(stack, target, jobs=jobs)


def run_crash(stack: Stack, target: Recorder, *, jobs: int) -> dict[str, Any]:
    tenants = a_tenant_on_each_cell(stack)
    due = (datetime.now(UTC) + timedelta(seconds=6 + jobs / 400)).replace(microsecond=0)
    expected = _create(tenants, target, due=due, jobs=jobs)
    eventually_sync(lambda: len(target.calls) >= jobs // 3, timeout=60)

    hosts_before = {cell: _hosts(info) for cell, info in stack.info["cells"].items()}
    for cell in stack.info["cells"]:
        stack.kill(f"cell-{cell}", signal.SIGKILL)
    killed_at = time.time()
    in_flight: set[str] = set()
    for cell, info in stack.info["cells"].items():
        in_flight |= _running(info, hosts_before[cell])
        redis.Redis.from_url(info["valkey_url"]).flushall()
    seen_at_kill = len(target.calls)

    def outcome() -> dict[str, int]:
        states: dict[str, int] = {}
        for info in stack.info["cells"].values():
            for state, count in _states(info, due):
                states[state] = states.get(state, 0) + count
        return states

    eventually_sync(lambda: outcome().get("SUCCEEDED", 0) >= jobs, timeout=DEADLINE_SECONDS + 30)
    healed_seconds = time.time() - killed_at
    keys = target.keys()
    ours = {key: count for key, count in keys.items() if key in expected}
    twice = {key for key, count in ours.items() if count > 1}
    states = outcome()
    return {
        "holds": states == {"SUCCEEDED": jobs}
        and set(ours) == expected
        and twice <= in_flight
        and healed_seconds <= DEADLINE_SECONDS
        and 0 < seen_at_kill < jobs,
        "jobs": jobs,
        "cells": len(stack.info["cells"]),
        "called_before_kill": seen_at_kill,
        "in_flight_at_kill": len(in_flight),
        "seen_twice": len(twice),
        "seen_twice_not_in_flight": len(twice - in_flight),
        "never_seen": len(expected - set(ours)),
        "run_states": states,
        "healed_seconds": round(healed_seconds, 1),
    }


def a_tenant_on_each_cell(stack: Stack) -> list[Api]:
    """The demo tenant, and a fresh one on every cell that does not hold it."""
    info = stack.info
    operator = Api(info["api_url"], info["operator_api_key"])
    tenants = [Api(info["api_url"], info["api_key"])]
    home = operator.get(f"/v1/admin/tenants/{info['tenant_id']}")["placement"]["cell"]
    for cell in info["cells"]:
        if cell == home:
            continue
        made = operator.call(
            "POST",
            "/v1/admin/tenants",
            {
                "slug": f"crash-{secrets.token_hex(4)}",
                "name": "Crash",
                "cell": cell,
                "quotas": {"job_runs_per_second": 2000, "api_requests_per_second": 1000},
            },
        )
        key = Api(info["api_url"], info["operator_api_key"], tenant_id=made["tenant_id"]).call(
            "POST", "/v1/api-keys", {"name": "crash", "scopes": ["admin"]}
        )
        tenants.append(Api(info["api_url"], key["api_key"]))
    for api in tenants:
        eventually_sync(lambda api=api: api.http.get("/v1/jobs").status_code == 200, timeout=20)
    return tenants


def _create(tenants: list[Api], target: Recorder, *, due: datetime, jobs: int) -> set[str]:
    at = due.strftime("%Y-%m-%dT%H:%M:%SZ")
    registered = [api.register_target(target.url)["target_id"] for api in tenants]

    def create(number: int) -> str:
        api, target_id = tenants[number % len(tenants)], registered[number % len(tenants)]
        job = api.create_job(
            {
                "schedule": {"type": "ONCE", "run_at": at},
                "target": {"type": "HTTP", "target_id": target_id},
                "dispatch_window_seconds": WINDOW_SECONDS,
                "payload": {"number": number},
            }
        )
        return f"{job['job_id']}:{at}"

    with ThreadPoolExecutor(8) as pool:
        return set(pool.map(create, range(jobs)))


def _hosts(info: dict[str, Any]) -> list[int]:
    with psycopg.connect(info["database_url"]) as connection:
        return [row[0] for row in connection.execute("SELECT host_id FROM hosts")]


def _running(info: dict[str, Any], hosts: list[int]) -> set[str]:
    """Run ids that the killed hosts held."""
    with psycopg.connect(info["database_url"]) as connection:
        rows = connection.execute(
            "SELECT parent_id, scheduled_for, ordinal FROM runs"
            " WHERE state = 'RUNNING' AND host_id = ANY(%s)",
            (hosts,),
        )
        return {
            run_id(RunKey(parent_id=r[0], scheduled_for=r[1].astimezone(UTC), ordinal=r[2])) for r in rows
        }


def _states(info: dict[str, Any], due: datetime) -> list[tuple[str, int]]:
    with psycopg.connect(info["database_url"]) as connection:
        return connection.execute(
            "SELECT state, count(*) FROM runs"
            " WHERE scheduled_for = %s AND target_id <> 'tgt_echo' GROUP BY 1",
            (due,),
        ).fetchall()
