"""One cell with durable engines of its own, its roles in processes that can be accounted alone.

Jobs are written through the store before the hosts start: what is measured begins at their due
time, with the loader having read them from PostgreSQL like any others.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import psutil
import psycopg
from psycopg import sql

from cells.domain import ids
from cells.domain.job import JobDefinition, JobState, Priority, Schedule, ScheduleType, TargetRef
from cells.ports import Fence, NewJob, SealedSecret, TargetRow, TenantConfig, TenantPlacement
from cells.secrets import SealedBox, target_context
from cells.store.postgres import PostgresStore
from deploy.engines import temporary_folder, temporary_postgres, temporary_valkey
from deploy.ports import Reservation
from tests.bench.target import cheap_target
from tests.waiting import eventually_sync

CELL = "bench"
TARGET = "tgt_bench"
#: One process runs executors; the other everything else, so that CPU per run can be told apart.
SPLIT = {"executor": "executor", "rest": "api,loader,dispatcher,reaper,meter"}


@dataclass
class BenchCell:
    """A prepared cell: engines up, tenant placed, target approved; hosts not started yet."""

    folder: Path
    database_url: str
    valkey_url: str
    engine_pids: dict[str, int]
    target_url: str
    key_hex: str = field(default_factory=lambda: secrets.token_hex(32))
    installation_key: str = field(default_factory=lambda: secrets.token_hex(32))
    tenant_id: uuid.UUID = field(default_factory=lambda: ids.fresh_id(now_ms=0, entropy=os.urandom(10)))
    hosts: dict[str, psutil.Process] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    # --- jobs ------------------------------------------------------------------------
    def write_jobs(self, due: Sequence[datetime], *, priority: Priority = Priority.DEFAULT) -> float:
        """ONCE jobs without a window at these instants; how many a second were written."""
        return self.write([self.job(at, priority=priority) for at in due])

    def migrate(self) -> None:
        """Make the schema."""
        subprocess.run(
            [sys.executable, "-m", "cells.store", "migrate"],
            env={**os.environ, "CELL_NAME": CELL, "CELL_DATABASE_URL": self.database_url},
            check=True,
            stdout=subprocess.DEVNULL,
        )

    async def prepare(self) -> None:
        """Place a tenant without limits and approve its target."""
        store = PostgresStore(self.database_url, cell_name=CELL)
        await store.open()
        try:
            await store.put_tenant(
                TenantPlacement(
                    tenant_id=self.tenant_id,
                    state="ACTIVE",
                    ownership_epoch=1,
                    config_version=1,
                    config=TenantConfig(
                        job_runs_per_second=1_000_000,
                        strict_jobs_per_second=1_000_000,
                        pending_timers=100_000_000,
                        running_runs=1_000_000,
                    ),
                )
            )
            host = await store.register_host(name=f"bench-{os.getpid()}", roles=["bench"], lease_ms=600_000)
            now = datetime.now(UTC)
            vault = SealedBox([bytes.fromhex(self.installation_key)])
            await store.create_target(
                Fence(tenant_id=self.tenant_id, epoch=1),
                TargetRow(
                    tenant_id=self.tenant_id,
                    target_id=TARGET,
                    state="APPROVED",
                    version=1,
                    base_url=self.target_url,
                    owner_team=None,
                    description=None,
                    max_concurrency=10_000,
                    initial_concurrency=10_000,
                    latency_slo_ms=2000,
                    auth={"type": "HMAC_SHA256"},
                    settings={},
                    created_by="bench",
                    created_at=now,
                    updated_at=now,
                    approved_by="bench",
                    approved_at=now,
                ),
                [
                    SealedSecret(
                        generation=1,
                        purpose="SIGNING",
                        sealed=vault.seal(
                            os.urandom(32), context=target_context(self.tenant_id, TARGET, "SIGNING")
                        ),
                        created_at=now,
                        expires_at=None,
                    )
                ],
                host_id=host.host_id,
            )
            await store.retire_host(host_id=host.host_id)
        finally:
            await store.close()

    def write(self, jobs: Sequence[NewJob]) -> float:
        """These jobs, through the store; how many a second were written."""
        return asyncio.run(self._write(jobs))

    async def _write(self, jobs: Sequence[NewJob]) -> float:
        store = PostgresStore(self.database_url, cell_name=CELL)
        await store.open()
        began = time.monotonic()
        try:
            host = await store.register_host(name=f"bench-{os.getpid()}", roles=["bench"], lease_ms=600_000)
            fence = Fence(tenant_id=self.tenant_id, epoch=1)
            for start in range(0, len(jobs), 1000):
                part = jobs[start : start + 1000]
                made = await store.create_jobs([fence] * len(part), part, host_id=host.host_id)
                failed = [m for m in made if isinstance(m, Exception)]
                if failed:
                    raise failed[0]
            await store.retire_host(host_id=host.host_id)
        finally:
            await store.close()
        return len(jobs) / (time.monotonic() - began)

    def job(
        self,
        at: datetime,
        *,
        priority: Priority = Priority.DEFAULT,
        schedule: Schedule | None = None,
        window_seconds: int | None = None,
    ) -> NewJob:
        """A job due at an instant; with a window, at the offset that is its own from there on.

        `schedule` is one whose next occurrence is that instant (a ONCE by default).
        """
        job_id = ids.fresh_id(now_ms=int(at.timestamp() * 1000), entropy=os.urandom(10))
        # Scheduled instants are whole seconds; the rest of the wish is the job's offset.
        scheduled = at.replace(microsecond=0)
        window_ms = 1000 * window_seconds if window_seconds else 1000 if at.microsecond else 0
        offset_ms = ids.offset_of(job_id, window_ms) if window_seconds else at.microsecond // 1000
        once = Schedule(type=ScheduleType.ONCE, run_at=scheduled.strftime("%Y-%m-%dT%H:%M:%SZ"))
        return NewJob(
            job_id=job_id,
            definition=JobDefinition(
                schedule=schedule or once,
                target=TargetRef(target_id=TARGET, path="/run"),
                priority=priority,
                dispatch_window_seconds=window_ms // 1000,
            ),
            payload=b'{"report":"hourly_sales","shard":17,"rows":[1,2,3,4,5,6,7,8]}',
            shard=ids.shard_of(job_id),
            window_ms=window_ms,
            offset_ms=offset_ms,
            next_run_at=scheduled,
            due_at=scheduled + timedelta(milliseconds=offset_ms),
            state=JobState.ACTIVE,
            actor="bench",
        )

    def fill(self, count: int, *, since: datetime, span: timedelta) -> None:
        """So many more jobs that wait, due between `since` and a span later: made inside PostgreSQL,
        with the indexes built afterwards, so that ten million take minutes."""
        definition = msgspec.json.encode(self.job(since).definition)
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            indexes = connection.execute(
                "SELECT indexname, indexdef FROM pg_indexes"
                " WHERE tablename = 'jobs' AND indexname <> 'jobs_pkey'"
            ).fetchall()
            for name, _ in indexes:
                connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
            connection.execute(
                "INSERT INTO jobs (tenant_id, job_id, shard, state, priority, window_ms, offset_ms,"
                " next_run_at, due_at, target_id, region_policy)"
                " SELECT %(tenant)s, uuidv7(), n %% 256, 'ACTIVE', 2, 0, 0, at, at, %(target)s, 'HOME_ASYNC'"
                " FROM generate_series(1, %(count)s) AS n, LATERAL (SELECT date_trunc('second',"
                " %(since)s::timestamptz + %(span)s::interval * (n / %(count)s::float8))) AS due (at)",
                {
                    "tenant": self.tenant_id,
                    "target": TARGET,
                    "count": count,
                    "since": since,
                    "span": span,
                },
            )
            for _, definition_sql in indexes:
                connection.execute(definition_sql)
            connection.execute(
                "INSERT INTO job_versions (tenant_id, job_id, version, definition, created_by)"
                " SELECT tenant_id, job_id, 1, %s, 'bench' FROM jobs ON CONFLICT DO NOTHING",
                (definition,),
            )
            # What autovacuum would do of millions of new rows some minutes later, beside what is measured.
            connection.execute("VACUUM (ANALYZE) jobs, job_versions")
            connection.execute("CHECKPOINT")

    # --- hosts -----------------------------------------------------------------------
    @contextmanager
    def running(self, roles: dict[str, str] | None = None) -> Iterator[None]:
        """The cell's processes, ready."""
        with ExitStack() as stack:
            for name, role in (roles or SPLIT).items():
                stack.enter_context(self._process(name, role))
            for name in roles or SPLIT:
                eventually_sync(lambda name=name: self._ready(name), timeout=30)
            yield

    @contextmanager
    def _process(self, name: str, roles: str) -> Iterator[None]:
        reservation = Reservation()
        self.ports[name] = reservation.port
        environment = {
            **os.environ,
            "CELL_NAME": CELL,
            "CELL_REGION": "local",
            "CELL_DATABASE_URL": self.database_url,
            "CELL_VALKEY_URL": self.valkey_url,
            "CELL_BIND": f"127.0.0.1:{reservation.port}",
            "CELL_KEYS": f"{CELL}:{self.key_hex}",
            "CELL_INSTALLATION_KEY": self.installation_key,
            "CELL_CONTROL_URL": "",
            "CELL_EGRESS_ALLOW": "loopback",
            "CELL_LOG_LEVEL": "WARNING",
        }
        log = (self.folder / f"{name}.log").open("wb")
        child = subprocess.Popen(
            [sys.executable, "-m", "cells.host", "--roles", roles], env=environment, stdout=log, stderr=log
        )
        self.hosts[name] = psutil.Process(child.pid)
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            log.close()
            reservation.release()

    def _ready(self, name: str) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.ports[name]}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    # --- figures ---------------------------------------------------------------------
    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far, of each host process and each engine with its children."""
        out = {name: _cpu(process) for name, process in self.hosts.items()}
        for name, pid in self.engine_pids.items():
            out[name] = _cpu_tree(psutil.Process(pid))
        return out

    def query(self, question: str) -> list[tuple[object, ...]]:
        """Rows of a question to the cell's database."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return connection.execute(question.encode()).fetchall()

    def wait_for_runs(self, count: int, *, timeout: float, where: str = "true") -> None:
        """Until so many runs (of some) have ended."""
        ended = f"SELECT count(*) FROM runs WHERE finished_at IS NOT NULL AND {where}"  # noqa: S608
        eventually_sync(
            lambda: self.query(ended)[0][0] >= count,  # type: ignore[operator]
            timeout=timeout,
            interval=0.5,
        )

    def count_runs(self, where: str = "true") -> float:
        """How many there are (of some)."""
        return float(self.query(f"SELECT count(*) FROM runs WHERE {where}")[0][0])  # type: ignore[arg-type]  # noqa: S608

    def stages_ms(self, where: str = "true") -> dict[str, float]:
        """Where the time of first attempts went: medians and p99 of due to released, claimed, started."""
        out = {}
        for name, stage in (
            ("release", "released_at - due_at"),
            ("claim", "claimed_at - released_at"),
            ("start", "started_at - claimed_at"),
        ):
            row = self.query(
                "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ms),"  # noqa: S608
                " percentile_disc(0.99) WITHIN GROUP (ORDER BY ms)"
                f" FROM (SELECT 1000 * extract(epoch FROM {stage}) AS ms FROM runs WHERE {where}) AS r"
            )[0]
            out[f"{name}_p50_ms"], out[f"{name}_p99_ms"] = (float(value) for value in row)  # type: ignore[arg-type]
        return out

    def lag_ms(self, where: str = "true") -> dict[str, float]:
        """Start minus due of all runs (or some): quantiles, the worst, how many were early or failed."""
        row = self.query(
            """SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY lag),
                      percentile_disc(0.99) WITHIN GROUP (ORDER BY lag),
                      percentile_disc(0.999) WITHIN GROUP (ORDER BY lag),
                      max(lag), count(*) FILTER (WHERE lag < 0),
                      count(*) FILTER (WHERE state <> 'SUCCEEDED')
               FROM (SELECT 1000 * extract(epoch FROM started_at - due_at) AS lag, state
                     FROM runs WHERE """  # noqa: S608
            f"{where}) AS r"
        )[0]
        names = ("lag_p50_ms", "lag_p99_ms", "lag_p999_ms", "lag_max_ms", "early", "not_succeeded")
        return {name: float(value) for name, value in zip(names, row, strict=True)}  # type: ignore[arg-type]


@contextmanager
def bench_cell() -> Iterator[BenchCell]:
    """A fresh cell on engines that fsync."""
    with (
        temporary_folder() as folder,
        temporary_postgres(durable=True) as postgres,
        temporary_valkey(durable=True) as valkey,
        cheap_target(folder) as (url, target_pid),
    ):
        pids = {"postgres": _listener(postgres.port), "valkey": _listener(valkey.port)}
        if target_pid:
            pids["target"] = target_pid
        cell = BenchCell(
            folder=folder,
            database_url=postgres.url,
            valkey_url=valkey.url,
            engine_pids=pids,
            target_url=url,
        )
        cell.migrate()
        asyncio.run(cell.prepare())
        yield cell


def _listener(port: int) -> int:
    for connection in psutil.net_connections("tcp"):
        listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        if listens and connection.pid:
            return connection.pid
    raise RuntimeError(f"nobody listens on {port}")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _cpu_tree(process: psutil.Process) -> float:
    """CPU of a process, its children and those it has reaped."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += (
            times.user
            + times.system
            + (times.children_user + times.children_system if one == process else 0.0)
        )
    return total
