"""move-crash: in every step of a move the control plane's worker, the source or the destination is killed
(-9), and once the source's cell and its database go away after the handoff. Each tenant ends in one cell,
works there, has every occurrence once, and none of its runs was claimed in both."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from cells.domain import ids
from tests.proofs.move import Mover
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

STATES = ("PREPARE", "COPY", "CATCH_UP", "BARRIER", "SEAL", "HANDOFF", "VERIFY", "CLEANUP")
VICTIMS = ("control", "source", "destination")
CASES = tuple((state, victim) for state in STATES for victim in VICTIMS)
#: Until a move has come through a crash.
_HEALED_SECONDS = 180
_RUNS_PER_SECOND = 5
#: What each case's tenant is promised: all of them end in one cell, which the other must be able to replace.
_PROMISED = 50
_SETTLED = ("CLEANUP", "DONE", "ABORTED")


def main(cases: Sequence[tuple[str, str]] = CASES, jobs: int = 2000) -> dict[str, Any]:
    with Recorder(delay_seconds=0.2) as target, Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        return run_crashes(stack, target, cases=cases, jobs=jobs)


def run_crashes(
    stack: Stack, target: Recorder, *, cases: Sequence[tuple[str, str]], jobs: int, gone: bool = True
) -> dict[str, Any]:
    """One tenant for each case; the last one loses its source's whole cell for a while."""
    told: list[dict[str, Any]] = []
    for state, victim in cases:
        told.append(_case(stack, target, state, victim, jobs=jobs))
    if gone:
        told.append(_source_gone(stack, target, jobs=jobs))
    wrong = [case for case in told if not case["holds"]]
    return {
        "holds": bool(told) and not wrong,
        "cases": len(told),
        "moved": sum(case["state"] in ("CLEANUP", "DONE") for case in told),
        "given_up": sum(case["state"] == "ABORTED" for case in told),
        "attempts": max(case["attempt"] for case in told),
        "longest_healing_seconds": max(case["healed_seconds"] for case in told),
        "claimed_in_both": sum(case["claimed_in_both"] for case in told),
        "occurrences_without_a_run": sum(case["occurrences_without_a_run"] for case in told),
        "wrong": wrong,
        "by_case": {case["case"]: f"{case['state']} after {case['healed_seconds']} s" for case in told},
    }


def _processes(mover: Mover, victim: str) -> str:
    if victim == "control":
        return "celery-driving"
    return f"cell-{mover.source if victim == 'source' else mover.destination}"


def _at(stack: Stack, move: str, state: str) -> str:
    """Waits until the move is in that state, or beyond; where it is."""
    order = (*STATES, "DONE", "ABORTED")
    with psycopg.connect(stack.info["control_database_url"], autocommit=True) as sql:

        def there() -> str | None:
            row = sql.execute(
                "SELECT state FROM moves_tenantmove WHERE id = %s", [ids.decode("mov", move)]
            ).fetchone()
            now = str(row[0]) if row else ""
            return now if now in order and order.index(now) >= order.index(state) else None

        found = eventually_sync(there, timeout=60, interval=0.002)
    assert found is not None
    return found


def _begun(stack: Stack, target: Recorder, jobs: int) -> tuple[Mover, str]:
    mover = Mover(stack, target, promised=_PROMISED)
    mover.fill(jobs)
    mover.busy(_RUNS_PER_SECOND)
    return mover, mover.start()


def _judged(mover: Mover, move: str, name: str, killed_at: float) -> dict[str, Any]:
    done = mover.wait(move, *_SETTLED, timeout=_HEALED_SECONDS)
    healed = time.monotonic() - killed_at
    mover.wait_for_runs(after_seconds=2)
    found = mover.judge(done)
    return {**found, "case": name, "healed_seconds": round(healed, 1), "attempt": done["attempt"]}


def _case(stack: Stack, target: Recorder, state: str, victim: str, *, jobs: int) -> dict[str, Any]:
    mover, move = _begun(stack, target, jobs)
    process = _processes(mover, victim)
    was = _at(stack, move, state)
    pid = stack.pid(process)
    stack.kill(process, signal.SIGKILL)
    killed_at = time.monotonic()
    stack.wait_until_replaced(process, pid, timeout=60)
    return _judged(mover, move, f"{state} {victim} (in {was})", killed_at)


def _source_gone(stack: Stack, target: Recorder, *, jobs: int) -> dict[str, Any]:
    """After the handoff the source's processes and its database are away: the tenant works in its new cell.
    They come back: the source learns where its tenant went."""
    mover, move = _begun(stack, target, jobs)
    _at(stack, move, "VERIFY")
    names = [f"cell-{mover.source}", f"postgres-{mover.source}"]
    for name in names:
        stack.stop(name, kill=True)
    killed_at = time.monotonic()
    mover.wait(move, "CLEANUP", "DONE", timeout=_HEALED_SECONDS)
    mover.wait_for_runs(after_seconds=3)
    for name in reversed(names):
        stack.start(name)

    def knows() -> bool:
        with mover.stack.database(mover.source) as sql:
            row = sql.execute("SELECT state FROM tenants WHERE tenant_id = %s", [mover.uuid]).fetchone()
        return row == ("MOVED",)

    eventually_sync(knows, timeout=90)
    return _judged(mover, move, "source gone", killed_at)
