"""meters-exact: two cells under load while hosts are killed (-9), a second shipper with a wrong clock
joins, the control plane goes away and comes back, cells' epochs are raised and a tenant moves to the other
cell in mid-minute, and all that was shipped is sent again, and once with other figures; then another region
takes a cell over in mid-minute. The ledger's sums are what ended, exactly."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg

from cells.contract import Caller, MeterRecord, Metric, Scope, body_hash, sign_request
from cells.domain.ids import TENANT, decode, encode
from deploy import children
from deploy.home import ROOT
from deploy.ports import Reservation
from tests.inhabited import operator_api
from tests.proofs import meters_taken_over
from tests.proofs.crash import a_tenant_on_each_cell
from tests.recorder import Recorder
from tests.stack import Stack
from tests.stepped_host import step
from tests.waiting import eventually_sync

JOBS, WORKFLOWS = 600, 30
STEPS = ("one", "two", "three")
#: The jobs are spread over so long, across several minutes.
SPREAD_SECONDS = 100
STEP_MS = 2000
#: A minute, what is open in it, and the pauses of a shipper that found nobody.
SHIPPED_SECONDS = 240


def main(jobs: int = JOBS, workflows: int = WORKFLOWS) -> dict[str, Any]:
    began = time.monotonic()
    with Recorder(delay_seconds=0.05) as target, Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        found = run(stack, target, jobs=jobs, workflows=workflows)
    taken_over = meters_taken_over.main(jobs=jobs // 2)
    return {
        **found,
        "holds": found["holds"] and taken_over["holds"],
        "taken_over": taken_over,
        "seconds": round(time.monotonic() - began),
    }


def run(stack: Stack, target: Recorder, *, jobs: int, workflows: int) -> dict[str, Any]:
    """All troubles at once, then the sums."""
    tenants = a_tenant_on_each_cell(stack)
    cells = list(stack.info["cells"])
    targets = [api.register_target(target.url)["target_id"] for api in tenants]
    begin = (datetime.now(UTC) + timedelta(seconds=8)).replace(microsecond=0)

    def create(n: int) -> None:
        at = begin + timedelta(seconds=n * SPREAD_SECONDS // jobs)
        which = n % len(tenants)
        tenants[which].create_job(
            {
                "schedule": {"type": "ONCE", "run_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"},
                "target": {"target_id": targets[which]},
                "dispatch_window_seconds": 5,
            }
        )

    def flow(n: int) -> None:
        # Its cell may just have been killed; the same start again is the same workflow.
        begin = {"workflow_id": f"meters-{n}", "definition": "meters"}
        http = tenants[n % len(tenants)].http
        eventually_sync(lambda: http.post("/v1/workflows", json=begin).is_success, timeout=60)

    for api, target_id in zip(tenants, targets, strict=True):
        steps = [{"id": name, "activity": {"target_id": target_id, "path": f"/{name}"}} for name in STEPS]
        api.call("PUT", "/v1/workflow-definitions/meters/versions/1", {"steps": steps})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(jobs)))
        epochs = 0
        with _second_shipper(stack, cells[0]) as (clock, port):
            list(pool.map(flow, range(workflows // 2)))
            stack.stop("django")
            for n in range(4):
                time.sleep(SPREAD_SECONDS / 8)
                step(clock, STEP_MS if n % 2 else -STEP_MS)
                stack.kill(f"cell-{cells[n % len(cells)]}", signal.SIGKILL)
                epochs += _raise_epoch(stack, cells[n % len(cells)])
            stack.start("django")
            moved = _move(stack, str(stack.info["tenant_id"]), cells)
            shipped_too = _shipped_by(port)
            list(pool.map(flow, range(workflows // 2, workflows)))
        eventually_sync(lambda: _ended(stack) >= (jobs, workflows), timeout=120)
    wanted = _recorded(stack)
    eventually_sync(lambda: _ledger(stack) == wanted, timeout=SHIPPED_SECONDS)
    again = {cell: _send_again(stack, cell) for cell in cells}
    false = {cell: _send_again(stack, cell, change=1) for cell in cells}
    eventually_sync(lambda: _dirty_days(stack) == 0, timeout=60)
    ledger, rollup = _ledger(stack), _rollup(stack)
    return {
        "holds": ledger == wanted == rollup
        and sum(wanted["job_runs"].values()) == jobs
        and sum(wanted["workflow_steps"].values()) == workflows * len(STEPS)
        and all(set(words) == {"identical"} for words in again.values())
        and all(set(words) == {"conflict"} for words in false.values())
        and len({host for _, host in _writers(stack)}) > len(cells)
        and epochs == 4
        and shipped_too > 0
        and _counted_on(stack, str(stack.info["tenant_id"])) == set(cells),
        "job_runs": sum(wanted["job_runs"].values()),
        "run_attempts": sum(wanted["run_attempts"].values()),
        "workflow_steps": sum(wanted["workflow_steps"].values()),
        "ledger_equals_runs": ledger == wanted,
        "rollup_equals_ledger": rollup == ledger,
        "records_sent_again": sum(len(words) for words in again.values()),
        "contradictions_refused": sum(words.count("conflict") for words in false.values()),
        "epochs_and_incarnations": len(_writers(stack)),
        "moved_under_load_in_seconds": moved,
        "acknowledged_to_the_second_shipper": shipped_too,
    }


@contextmanager
def _second_shipper(stack: Stack, cell: str) -> Iterator[tuple[Path, int]]:
    """Another host of the cell, all roles, with a clock of its own: it ships what the first one ships. Its
    clock and its port."""
    raw = Path(f"/proc/{stack.pid(f'cell-{cell}')}/environ").read_bytes()
    environment = dict(
        entry.split("=", 1) for entry in raw.decode().split("\0") if "=" in entry
    )  # what the supervisor gave the first one
    clock, log = stack.home.folder / "second.clock", stack.home.folder / "second.log"
    step(clock, 0)
    reservation = Reservation()
    environment |= {"CELL_BIND": f"127.0.0.1:{reservation.port}", "STEPPED_CLOCK": str(clock)}
    with log.open("ab") as output:
        process = children.spawn(
            [sys.executable, "-m", "tests.stepped_host"],
            log=output,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    try:
        eventually_sync(lambda: _ready(reservation.port), timeout=60)
        yield clock, reservation.port
    finally:
        process.kill()
        process.wait()
        reservation.release()


def _shipped_by(port: int) -> int:
    """How many records the control plane has acknowledged to a host."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
    lines = (line for line in text.splitlines() if line.startswith("meter_records_shipped_total"))
    return round(sum(float(line.split()[-1]) for line in lines))


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _raise_epoch(stack: Stack, cell: str) -> int:
    """As a takeover does, with runs under way and a minute half over."""
    with stack.database(cell) as connection:
        return connection.execute("UPDATE cell SET epoch = epoch + 1").rowcount


def _move(stack: Stack, tenant: str, cells: list[str]) -> float:
    """The tenant goes to the other cell while its jobs run; how long that took."""
    operator, began = operator_api(stack), time.monotonic()
    home = operator.get(f"/v1/admin/tenants/{tenant}")["placement"]["cell"]
    (other,) = set(cells) - {home}
    move = operator.call(
        "POST", "/v1/admin/moves", {"tenant_id": tenant, "cell": other, "reason": "a proof"}, expect=(202,)
    )["move_id"]
    eventually_sync(
        lambda: operator.get(f"/v1/admin/moves/{move}")["state"] in ("CLEANUP", "DONE"), timeout=180
    )
    return round(time.monotonic() - began, 1)


def _counted_on(stack: Stack, tenant: str) -> set[str]:
    """The cells that the ledger has runs of a tenant from."""
    with _control(stack) as connection:
        rows = connection.execute(
            "SELECT DISTINCT cell FROM billing_meter_record WHERE tenant_id = %s AND metric = 'run_attempts'",
            [decode(TENANT, tenant)],
        ).fetchall()
    return {cell for (cell,) in rows}


#: Whoever moved away has left rows behind, which are the new cell's now.
_HERE = "tenant_id IN (SELECT tenant_id FROM tenants WHERE state <> 'MOVED')"
Sums = dict[str, dict[str, int]]


def _recorded(stack: Stack) -> Sums:
    """What the cells' own records say, by metric and tenant."""
    found: Sums = {"job_runs": {}, "run_attempts": {}, "workflow_steps": {}}
    for cell in stack.info["cells"]:
        with stack.database(cell) as connection:
            for tenant, runs, attempts in connection.execute(
                "SELECT tenant_id, count(*) FILTER (WHERE kind = 0 AND finished_at IS NOT NULL"  # noqa: S608
                " AND state <> 'SKIPPED' AND ordinal >= 0), sum(jsonb_array_length(attempts))"
                f" FROM runs WHERE {_HERE} GROUP BY 1"
            ):
                found["job_runs"][str(tenant)] = runs
                found["run_attempts"][str(tenant)] = attempts
            for tenant, steps in connection.execute(
                "SELECT tenant_id, count(*) FROM workflow_events"  # noqa: S608
                f" WHERE type = 'ACTIVITY_COMPLETED' AND {_HERE} GROUP BY 1"
            ):
                found["workflow_steps"][str(tenant)] = steps
    return {metric: {t: n for t, n in sums.items() if n} for metric, sums in found.items()}


def _ended(stack: Stack) -> tuple[int, int]:
    runs = flows = 0
    for cell in stack.info["cells"]:
        with stack.database(cell) as connection:
            row = connection.execute(
                "SELECT"  # noqa: S608
                " (SELECT count(*) FROM runs WHERE kind = 0 AND finished_at IS NOT NULL AND ordinal >= 0"
                f" AND {_HERE}),"
                f" (SELECT count(*) FROM workflows WHERE closed_at IS NOT NULL AND {_HERE})"
            ).fetchone()
            assert row is not None
            runs, flows = runs + row[0], flows + row[1]
    return runs, flows


def _control(stack: Stack) -> psycopg.Connection[Any]:
    return psycopg.connect(stack.info["control_database_url"], autocommit=True)


def _ledger(stack: Stack) -> Sums:
    return _sums(stack, "billing_meter_record")


def _rollup(stack: Stack) -> Sums:
    return _sums(stack, "billing_usage_day")


def _sums(stack: Stack, table: str) -> Sums:
    found: Sums = {"job_runs": {}, "run_attempts": {}, "workflow_steps": {}}
    with _control(stack) as connection:
        for metric, tenant, quantity in connection.execute(
            f"SELECT metric, tenant_id, sum(quantity)::bigint FROM {table}"  # noqa: S608
            " WHERE metric = ANY(%s) GROUP BY 1, 2",
            [list(found)],
        ):
            if quantity:
                found[metric][str(tenant)] = quantity
    return found


def _writers(stack: Stack) -> set[tuple[int, str]]:
    with _control(stack) as connection:
        return set(
            connection.execute(
                "SELECT DISTINCT epoch, host FROM billing_meter_record WHERE metric = 'run_attempts'"
            ).fetchall()
        )


def _dirty_days(stack: Stack) -> int:
    with _control(stack) as connection:
        row = connection.execute("SELECT count(*) FROM billing_dirty_day").fetchone()
        return int(row[0]) if row else 0


def _send_again(stack: Stack, cell: str, *, change: int = 0) -> list[str]:
    """All that the cell ever shipped, signed by it, as it was or with other figures; the words."""
    with stack.database(cell) as connection:
        rows = connection.execute(
            "SELECT tenant_id, store, epoch, host, minute, metric, region_policy, quantity FROM meter_minutes"
            " WHERE shipped_at IS NOT NULL AND minute > now() - interval '1 day'"
        ).fetchall()
    records = [
        MeterRecord(
            tenant_id=encode(TENANT, tenant), cell=cell, store=store, epoch=epoch, host=host,
            minute=f"{minute.astimezone(UTC):%Y-%m-%dT%H:%M:00Z}", metric=Metric(metric),
            region_policy=policy, quantity=quantity + change,
        )
        for tenant, store, epoch, host, minute, metric, policy, quantity in rows
    ]  # fmt: skip
    environ = Path(f"/proc/{stack.pid(f'cell-{cell}')}/environ").read_bytes().decode().split("\0")
    settings = dict(entry.split("=", 1) for entry in environ if "=" in entry)
    kid, _, key = settings["CELL_KEYS"].split(",")[0].partition(":")
    url = httpx.URL(settings["CELL_CONTROL_URL"].rstrip("/") + "/internal/meters")
    words: list[str] = []
    for at in range(0, len(records), 5000):
        body = msgspec.json.encode({"records": records[at : at + 5000]})
        headers = sign_request(
            kid=kid, secret=bytes.fromhex(key), now_ms=time.time_ns() // 1_000_000, method="POST",
            target=url.raw_path.decode(), caller=Caller(actor=f"cell:{cell}", scopes=(Scope.INTERNAL,)),
            body_sha256=body_hash(body),
        )  # fmt: skip
        answer = httpx.post(
            url, content=body, headers={**headers, "Content-Type": "application/json"}, timeout=60
        )
        assert answer.status_code == (409 if change else 200), answer.text[:500]
        words += answer.json()["results"]
    return words
