"""move: a tenant with many jobs moves to the other cell while its jobs run. The pause from the seal to the
first call out of the new cell stays below its bar, every row arrives, every occurrence has one run, none is
claimed in both cells, and the source keeps nothing."""

from __future__ import annotations

import itertools
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import psycopg

from cells.domain import ids
from tests.api import Api
from tests.recorder import Call, Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

#: Jobs that wait for a far day, and runs a second meanwhile.
JOBS, RUNS_PER_SECOND = 1_000_000, 200
PAUSE_BAR_MS, COPY_BAR = 2_000, 50_000
_DONE_SECONDS = 600
_COPY_PAGE = 20_000


def main(jobs: int = JOBS, runs_per_second: int = RUNS_PER_SECOND) -> dict[str, Any]:
    with Recorder(delay_seconds=0.3) as target, Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        return run_move(stack, target, jobs=jobs, runs_per_second=runs_per_second)


def run_move(stack: Stack, target: Recorder, *, jobs: int, runs_per_second: int) -> dict[str, Any]:
    """A fresh tenant of the first cell moves to the second."""
    mover = Mover(stack, target)
    mover.fill(jobs)
    mover.busy(runs_per_second)
    move = mover.start()
    done = mover.wait(move, "DONE", "CLEANUP", "ABORTED")
    mover.wait_for_runs(after_seconds=6)
    found = mover.judge(done)
    return {
        **found,
        "ends_handed_on": mover.metric(mover.source, "moves_completions_handed_on_total"),
        "holds": found["holds"]
        and move_was_made(found)
        and (jobs < JOBS or found["pause_ms"] < PAUSE_BAR_MS),
        "jobs": jobs,
        "runs_per_second": runs_per_second,
        "pause_bar_ms": PAUSE_BAR_MS,
        "copy_bar_rows_per_second": COPY_BAR,
    }


def move_was_made(found: dict[str, Any]) -> bool:
    """Whether the tenant lives in the new cell."""
    return found["state"] in ("CLEANUP", "DONE")


class Mover:
    """A tenant that works while it is moved, and what became of its runs."""

    def __init__(self, stack: Stack, target: Recorder, *, promised: int = 2000) -> None:
        """A tenant with so many runs a second promised, which both cells must have room for."""
        self.stack, self.target = stack, target
        info = stack.info
        self.source, self.destination = list(info["cells"])[:2]
        self.operator = Api(info["api_url"], info["operator_api_key"])
        self.path = f"/{secrets.token_hex(4)}"  # of this tenant's calls
        made = self.operator.call(
            "POST",
            "/v1/admin/tenants",
            {
                "slug": f"mover-{secrets.token_hex(4)}",
                "name": "Mover",
                "cell": self.source,
                "quotas": {
                    "job_runs_per_second": promised,
                    "api_requests_per_second": 10_000,
                    "pending_timers": 20_000_000,
                },
            },
        )
        self.tenant_id = made["tenant_id"]
        self.uuid = ids.decode(ids.TENANT, self.tenant_id)
        key = Api(info["api_url"], info["operator_api_key"], tenant_id=self.tenant_id).call(
            "POST", "/v1/api-keys", {"name": "mover", "scopes": ["admin"]}
        )
        self.api = Api(info["api_url"], key["api_key"])
        eventually_sync(lambda: self.api.http.get("/v1/jobs").status_code == 200, timeout=20)
        self.target_id = self.api.register_target(target.url)["target_id"]
        self.began = datetime.now(UTC)

    def _sql(self, cell: str) -> psycopg.Connection[Any]:
        return self.stack.database(cell)

    # --- work ----------------------------------------------------------------------------
    def fill(self, jobs: int) -> None:
        """So many jobs for a far day, copied from one that the API made: creating a million one by one is
        another proof's work."""
        at = (datetime.now(UTC) + timedelta(days=90)).strftime("%Y-%m-%dT%H:%M:%SZ")
        one = self.api.create_job(
            {
                "name": "far",
                "tags": ["filled"],
                "schedule": {"type": "ONCE", "run_at": at},
                "target": {"type": "HTTP", "target_id": self.target_id},
                "dispatch_window_seconds": 300,
            }
        )
        pattern = ids.decode(ids.JOB, one["job_id"])
        with self._sql(self.source) as sql:
            for start in range(1, jobs, _COPY_PAGE):
                fresh = [uuid.uuid4() for _ in range(min(_COPY_PAGE, jobs - start))]
                with sql.transaction():
                    for table in ("jobs", "job_versions", "job_facets"):
                        columns = [
                            name
                            for (name,) in sql.execute(
                                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass"
                                " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                                [table],
                            )
                        ]
                        chosen = ", ".join("n.id" if c == "job_id" else f"t.{c}" for c in columns)
                        sql.execute(
                            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen}"  # noqa: S608
                            f" FROM {table} t CROSS JOIN unnest(%s::uuid[]) AS n (id)"
                            " WHERE t.tenant_id = %s AND t.job_id = %s".encode(),
                            [fresh, self.uuid, pattern],
                        )

    def busy(self, runs_per_second: int) -> None:
        """Jobs that each run every ten seconds, spread evenly: so many runs a second."""
        jobs = runs_per_second * 10
        body = {
            "schedule": {"type": "RATE", "every_seconds": 10},
            "target": {"type": "HTTP", "target_id": self.target_id, "path": self.path},
            "dispatch_window_seconds": 9,
        }
        for start in range(0, jobs, 500):
            page = [{**body, "name": f"busy-{n}"} for n in range(start, min(start + 500, jobs))]
            self.api.call("POST", "/v1/jobs:batch", {"jobs": page})
        eventually_sync(lambda: len(self.calls()) >= jobs // 2, timeout=60)

    def calls(self) -> list[Call]:
        """Calls that came for this tenant."""
        return [call for call in list(self.target.calls) if call.path == self.path]

    # --- the move ------------------------------------------------------------------------
    def start(self) -> str:
        """A plan first, then the move; its id."""
        plan = self.operator.call(
            "POST",
            "/v1/admin/moves",
            {"tenant_id": self.tenant_id, "cell": self.destination, "dry_run": True},
        )
        assert plan["destination"] == self.destination
        move = self.operator.call(
            "POST",
            "/v1/admin/moves",
            {"tenant_id": self.tenant_id, "cell": self.destination, "reason": "proof"},
            expect=(202,),
        )
        return str(move["move_id"])

    def read(self, move: str) -> dict[str, Any]:
        """The move as operators see it."""
        return self.operator.get(f"/v1/admin/moves/{move}")

    def wait(self, move: str, *states: str, timeout: float = _DONE_SECONDS) -> dict[str, Any]:
        """Until it is in one of these states."""

        def there() -> dict[str, Any] | None:
            found = self.read(move)
            return found if found["state"] in states else None

        found = eventually_sync(there, timeout=timeout, interval=0.2)
        assert found is not None
        return found

    def wait_for_runs(self, *, after_seconds: float) -> None:
        """Until the new cell has called the target for a while."""
        seen, until = len(self.calls()), time.monotonic() + after_seconds
        eventually_sync(
            lambda: time.monotonic() > until and len(self.calls()) > seen, timeout=after_seconds + 60
        )

    def metric(self, cell: str, name: str) -> float:
        """A metric of a cell's process."""
        lines = httpx.get(f"{self.stack.info['cells'][cell]['url']}/metrics", timeout=10).text.splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{"))
        )

    # --- what became of it ---------------------------------------------------------------
    def claims(self, cell: str) -> Iterator[tuple[str, int, int]]:
        """Every run of the tenant that a cell's journal says it claimed: parent, instant, ordinal."""
        with self._sql(cell) as sql:
            for (body,) in sql.execute("SELECT body FROM journal ORDER BY at, host_id, seq"):
                for tenant, parent, at, ordinal, _ in msgspec.json.decode(body).get("claimed", ()):
                    if tenant == self.uuid.hex:
                        yield parent, at, ordinal

    def judge(self, move: dict[str, Any]) -> dict[str, Any]:
        """The claims of the proof."""
        here, there = (set(self.claims(cell)) for cell in (self.source, self.destination))
        calls = Counter(call.key for call in self.calls())
        gaps = self._gaps(self.destination if move["state"] in ("CLEANUP", "DONE") else self.source)
        facts = self._facts(move["move_id"])
        copied = facts.get("rows", {})
        total = sum(copied.values())
        seconds = facts.get("copy_seconds") or 0
        with self._sql(self.destination) as sql:
            state = sql.execute("SELECT state FROM tenants WHERE tenant_id = %s", [self.uuid]).fetchone()
        return {
            "holds": move["state"] in ("CLEANUP", "DONE")
            and state == ("ACTIVE",)
            and not gaps
            and not here & there
            and bool(there),
            "state": move["state"],
            "why": move["why"],
            "pause_ms": move["pause_ms"],
            "rows": total,
            "copy_seconds": seconds,
            "rows_per_second": round(total / seconds) if seconds else None,
            "compared_after_the_seal": facts.get("tail"),
            "claimed_in_source": len(here),
            "claimed_in_destination": len(there),
            "claimed_in_both": len(here & there),
            "occurrences_without_a_run": len(gaps),
            "called_twice": sum(count > 1 for count in calls.values()),
            "steps": {s["state"]: s["ended_at"] for s in move["steps"]},
        }

    def _facts(self, move: str) -> dict[str, Any]:
        with psycopg.connect(self.stack.info["control_database_url"]) as sql:
            row = sql.execute(
                "SELECT facts FROM moves_tenantmove WHERE id = %s", [ids.decode("mov", move)]
            ).fetchone()
        return dict(row[0]) if row else {}

    def _gaps(self, home: str) -> list[tuple[str, datetime]]:
        """Occurrences of busy jobs, up to a while ago, without a run in the cell where the tenant lives."""
        until = datetime.now(UTC) - timedelta(seconds=25)
        with self._sql(home) as sql:
            rows = sql.execute(
                "SELECT r.parent_id, r.scheduled_for FROM runs r JOIN jobs j USING (tenant_id)"
                " WHERE r.tenant_id = %s AND r.parent_id = j.job_id AND j.name LIKE 'busy-%%'"
                " AND r.scheduled_for < %s ORDER BY 1, 2",
                [self.uuid, until],
            ).fetchall()
        gaps: list[tuple[str, datetime]] = []
        for (parent, at), (next_parent, next_at) in itertools.pairwise(rows):
            if parent == next_parent and next_at - at != timedelta(seconds=10):
                gaps.append((str(parent), at))
        return gaps
