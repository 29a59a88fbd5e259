"""redrive: 20,000 dead letters are tried again while hosts of the cell are killed (-9): the first goes
alone, then ten, then the rest at the pace asked for. Each run is redriven once, under the key it had; a
redrive stops when told to, and by itself when a letter fails as before; a purge takes exactly its letters."""

from __future__ import annotations

import bisect
import contextlib
import json
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

import httpx

from cells.contract import Caller, Scope, sign_request
from cells.domain import ids
from cells.domain.ids import RunKey, run_id
from tests.bench.cell import CELL
from tests.fleet import Fleet, fleet
from tests.recorder import Recorder
from tests.waiting import eventually_sync

LETTERS = 20_000
HOSTS = "abc"
#: A host is killed this often while letters are redriven (seconds).
KILL_EVERY = 3.0
PURGED_PART = 0.05
#: Of what the pace allows in so many seconds; beyond it a second's worth may have been saved up.
PACE_SECONDS = 2.0
BROKEN, MENDED = 422, 200


@dataclass
class Operator:
    """Speaks to whichever host answers."""

    cell: Fleet
    killed: list[float] = field(default_factory=list)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer of the first host that gives one. A POST may be sent twice: each is safe to repeat."""
        key = str(secrets.randbits(64))
        for _ in range(60):
            for host in list(self.cell.hosts.values()):
                headers = sign_request(
                    kid=CELL,
                    secret=bytes.fromhex(self.cell.cell.key_hex),
                    now_ms=time.time_ns() // 1_000_000,
                    method=method,
                    target=path,
                    caller=Caller(
                        tenant_id=ids.encode(ids.TENANT, self.cell.cell.tenant_id),
                        actor="key:proof",
                        scopes=(Scope.ADMIN.value,),
                        epoch=1,
                    ),
                )
                try:
                    answer = httpx.request(
                        method,
                        host.url + path,
                        content=b"" if body is None else json.dumps(body).encode(),
                        headers={**headers, "Idempotency-Key": key},
                        timeout=10,
                    )
                except httpx.TransportError:
                    continue
                if answer.status_code < 500:
                    answer.raise_for_status()
                    return answer.json()
            time.sleep(0.5)
        raise RuntimeError(f"no host answers {method} {path}")

    def redrive(self, rate: int) -> str:
        """All that is open; its id."""
        return str(self.call("POST", "/v1/dlq:redrive", {"max_per_second": rate})["redrive_id"])

    def until(self, redrive: str, *states: str, processed: int = 0, timeout: float = 120.0) -> Any:
        """How the redrive stands once it is in one of the states, or has dealt with so many letters."""

        def there() -> Any:
            found = self.call("GET", f"/v1/redrives/{redrive}")
            return found if found["state"] in states or 0 < processed <= found["processed"] else None

        return eventually_sync(there, timeout=timeout, interval=0.25)

    @contextlib.contextmanager
    def killing(self) -> Iterator[None]:
        """One host after the other dies and comes back, meanwhile."""
        over = Event()
        faults: list[Exception] = []

        def kill() -> None:
            try:
                while not over.wait(KILL_EVERY):
                    name = random.choice(HOSTS)
                    self.cell.kill(name)
                    self.killed.append(time.time())
                    over.wait(0.5)
                    self.cell.start(name)
            except Exception as fault:  # noqa: BLE001 - raised again below
                faults.append(fault)

        thread = Thread(target=kill, name="killer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(90)
        if faults:
            raise faults[0]


def main(letters: int = LETTERS) -> dict[str, Any]:
    with Recorder() as target, fleet(target.url) as cell:
        cell.start_all(HOSTS)
        return run_redrive(cell, target, letters=letters)


def run_redrive(cell: Fleet, target: Recorder, *, letters: int) -> dict[str, Any]:
    """The proof on a running fleet."""
    operator = Operator(cell)
    rate = max(20, min(1000, letters // 20))
    _die(cell, target, letters)
    keys = set(target.keys())

    # It is still broken: the canary comes back, and nothing else is touched.
    before = len(target.calls)
    alone = operator.until(operator.redrive(rate), "STOPPED", "DONE")
    eventually_sync(lambda: _open(cell) == letters, timeout=30)
    stopped_alone = {
        "state": alone["state"],
        "processed": alone["processed"],
        "calls": len(target.calls) - before,
        "says_why": "failed again as before" in (alone["stop_reason"] or ""),
    }

    # A purge takes its letters and no others.
    named = _named(
        cell, "dlq WHERE state = 'OPEN' ORDER BY parent_id LIMIT %s", min(1000, round(letters * PURGED_PART))
    )
    purge = operator.call(
        "POST", "/v1/dlq:purge", {"filter": {"run_ids": sorted(named)}, "max_per_second": 1000}
    )
    operator.until(purge["redrive_id"], "DONE", "STOPPED")
    purged = _named(cell, "dlq WHERE state = 'PURGED'")
    purge_is_exact = purged == named and _open(cell) == letters - len(named)

    # Mended: it begins, is told to stop, and goes on later, while hosts die.
    target.status = MENDED
    calls_before = len(target.calls)
    with operator.killing():
        first = operator.redrive(rate)
        operator.until(first, "DONE", "STOPPED", processed=letters // 4)
        operator.call("POST", f"/v1/redrives/{first}:stop")
        stopped = operator.until(first, "STOPPED", "DONE")
        left = _open(cell)
        time.sleep(2.0)
        stop_stops = stopped["state"] == "STOPPED" and _open(cell) == left
        second = operator.redrive(rate)
        done = operator.until(second, "DONE", "STOPPED", timeout=90 + 4 * letters / rate)
    eventually_sync(lambda: _unended(cell) == 0, timeout=90, interval=0.5)

    again = {key for key, count in _counts(target, calls_before).items() if count > 1}
    lost = _named(cell, """runs WHERE attempts @> '[{"outcome": "LOST"}]'""")
    states = dict(
        cell.query("SELECT state || ' ' || series, count(*) FROM runs GROUP BY state, series ORDER BY 1")
    )
    redriven_twice = cell.query(
        "SELECT count(*) FROM (SELECT FROM dlq WHERE state = 'REDRIVEN'"
        " GROUP BY parent_id, scheduled_for, ordinal, series HAVING count(*) > 1) AS d"
    )[0][0]
    # The canary that came back ran in a third series; whatever else in its second.
    expected = {
        "SUCCEEDED 2": letters - len(named) - 1,
        "SUCCEEDED 3": 1,
        "FAILED 1": len(named),
    }
    if any(key.startswith("FAILED 2") for key in states):  # the canary was among the purged
        expected = {
            "SUCCEEDED 2": letters - len(named),
            "FAILED 1": len(named) - 1,
            "FAILED 2": 1,
        }
    found = {
        "letters": letters,
        "max_per_second": rate,
        "stopped_by_itself": stopped_alone,
        "purge_is_exact": purge_is_exact,
        "purged": len(named),
        "stop_stops": stop_stops,
        "second_redrive": {name: done[name] for name in ("state", "done", "unchanged", "failed")},
        "hosts_killed": len(operator.killed),
        "runs": states,
        "redriven_twice": redriven_twice,
        "foreign_keys": len(set(target.keys()) - keys),
        "called_twice": len(again),
        "called_twice_without_a_lost_holder": len(again - lost),
        "most_in_pace_window": _most_within(cell, PACE_SECONDS),
        "pace_allows": round(rate * (PACE_SECONDS + 1.5)),
        "canaries_first": all(
            _canaries(cell, ids.decode(ids.OPERATION, redrive)) for redrive in (first, second)
        ),
    }
    return {
        "holds": stopped_alone == {"state": "STOPPED", "processed": 1, "calls": 1, "says_why": True}
        and purge_is_exact
        and stop_stops
        and done["state"] == "DONE"
        and done["failed"] == 0
        and states == expected
        and not redriven_twice
        and not found["foreign_keys"]
        and not found["called_twice_without_a_lost_holder"]
        and found["most_in_pace_window"] <= found["pace_allows"]
        and found["canaries_first"]
        and found["hosts_killed"] > 0,
        **found,
    }


def _die(cell: Fleet, target: Recorder, letters: int) -> None:
    """So many jobs run once and fail for good."""
    target.status = BROKEN
    at = datetime.now(UTC) + timedelta(seconds=5)
    cell.cell.write_jobs([at + timedelta(milliseconds=5 * (n % 1000)) for n in range(letters)])
    eventually_sync(lambda: _open(cell) == letters, timeout=60 + letters / 100, interval=0.5)


def _open(cell: Fleet) -> int:
    return int(cell.query("SELECT count(*) FROM dlq WHERE state = 'OPEN'")[0][0])


def _unended(cell: Fleet) -> int:
    return int(cell.query("SELECT count(*) FROM runs WHERE finished_at IS NULL")[0][0])


def _counts(target: Recorder, since: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for call in list(target.calls)[since:]:
        counts[call.key] = counts.get(call.key, 0) + 1
    return counts


def _named(cell: Fleet, source: str, *parameters: object) -> set[str]:
    """The ids of some runs."""
    return {
        run_id(RunKey(parent_id=parent, scheduled_for=at.astimezone(UTC), ordinal=ordinal))
        for parent, at, ordinal in cell.query(
            f"SELECT parent_id, scheduled_for, ordinal FROM {source}",  # noqa: S608
            *parameters,
        )
    }


def _most_within(cell: Fleet, seconds: float) -> int:
    """The most letters that one operation redrove in so many seconds."""
    most = 0
    sent = "SELECT changed_at FROM dlq WHERE operation_id = %s AND state = 'REDRIVEN' ORDER BY 1"
    for (operation,) in cell.query("SELECT DISTINCT operation_id FROM dlq WHERE state = 'REDRIVEN'"):
        times = [at.timestamp() for (at,) in cell.query(sent, operation)]
        most = max([most, *(bisect.bisect_right(times, at + seconds) - i for i, at in enumerate(times))])
    return most


def _canaries(cell: Fleet, operation: Any) -> bool:
    """One letter went first, ten more after its run had ended, and the rest after theirs."""
    rows = cell.query(
        "SELECT d.changed_at, r.finished_at FROM dlq d"
        " JOIN runs r USING (tenant_id, parent_id, scheduled_for, ordinal)"
        " WHERE d.operation_id = %s AND d.state = 'REDRIVEN' ORDER BY d.changed_at",
        operation,
    )
    first, ten, rest = rows[:1], rows[1:11], rows[11:]
    return all(
        max(end for _, end in sent) <= min(at for at, _ in following)
        for sent, following in ((first, ten), (ten, rest))
        if following
    )
