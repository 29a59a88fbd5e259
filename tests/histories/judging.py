"""What must hold when a history is over."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
import psycopg

from cells.domain.run import TERMINAL, RunState
from cells.ports import JournalBody, NewJob
from tests.histories.cell import Ack, Record

_Run = tuple[uuid.UUID, int, int]  # parent, scheduled (epoch seconds), ordinal


def unaccounted(record: Record, homes: Mapping[uuid.UUID, str]) -> int:
    """How many acknowledged jobs have no run that ended or is under way yet."""
    missing = 0
    for tenant, url in homes.items():
        wanted = _acknowledged(record, tenant)
        with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
            here = connection.execute(
                "SELECT job_id FROM jobs WHERE tenant_id = %s AND job_id = ANY(%s)", (tenant, list(wanted))
            )
            # What is lost has no run to wait for; it is found and told later.
            waiting = {row[0] for row in here}
            ran = connection.execute(
                "SELECT parent_id FROM runs WHERE tenant_id = %s AND parent_id = ANY(%s)"
                " AND state NOT IN ('DUE', 'READY', 'RETRY_WAIT')",
                (tenant, list(wanted)),
            )
            missing += len(waiting - {row[0] for row in ran})
    return missing


def faults_of(
    record: Record, ticking: Mapping[uuid.UUID, NewJob], homes: Mapping[uuid.UUID, str], since: datetime
) -> list[str]:
    """All that is wrong."""
    faults = _out_of_order(record)
    ended: Counter[_Run] = Counter()
    for url in dict.fromkeys(homes.values()):
        ended += _ended(url, record, since - timedelta(seconds=5))
    for run, count in ended.items():
        if count > 1:
            faults.append(f"{run} was completed {count} times")
    for tenant, url in homes.items():
        with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
            faults += _lost(connection, record, tenant)
            faults += _unticked(connection, tenant, ticking[tenant])
    return faults


def _acknowledged(record: Record, tenant: uuid.UUID) -> set[uuid.UUID]:
    return {ack.job for ack in record.acks if ack.what == "create" and ack.tenant == tenant}


def _lost(connection: psycopg.Connection, record: Record, tenant: uuid.UUID) -> list[str]:
    """Acknowledged jobs that are not there or ran twice; ends that are not what was acknowledged."""
    faults = []
    jobs = {row[0] for row in connection.execute("SELECT job_id FROM jobs WHERE tenant_id = %s", (tenant,))}
    runs = {
        (row[0], int(row[1].timestamp()), row[2]): (RunState(row[3]), row[4])
        for row in connection.execute(
            "SELECT parent_id, scheduled_for, ordinal, state, epoch FROM runs WHERE tenant_id = %s", (tenant,)
        )
    }
    of_job = Counter(parent for parent, _, _ in runs)
    for job in _acknowledged(record, tenant):
        if job not in jobs:
            faults.append(f"the acknowledged job {job} of {tenant} is lost")
        elif of_job[job] != 1:
            faults.append(f"the job {job} of {tenant} has {of_job[job]} runs")
    for ack in record.acks:
        if ack.tenant != tenant or ack.key is None:
            continue
        key = ack.key.parent_id, int(ack.key.scheduled_for.timestamp()), ack.key.ordinal
        found = runs.get(key)
        if found != (RunState.SUCCEEDED, ack.claim_epoch):
            faults.append(
                f"the end of {key} under {ack.claim_epoch} was acknowledged, and is {found} ({ack.cell})"
            )
    return faults


def _unticked(connection: psycopg.Connection, tenant: uuid.UUID, ticks: NewJob) -> list[str]:
    """Occurrences of a job for each second that have neither a run nor a reason why not."""
    row = connection.execute(
        "SELECT next_run_at FROM jobs WHERE tenant_id = %s AND job_id = %s", (tenant, ticks.job_id)
    ).fetchone()
    if row is None or row[0] is None or ticks.next_run_at is None:
        return [f"the job for each second of {tenant} is lost"]
    told = connection.execute(
        "SELECT coalesce(sum(CASE WHEN state = 'SKIPPED' THEN skipped ELSE 1 END), 0)::int FROM runs"
        " WHERE tenant_id = %s AND parent_id = %s AND scheduled_for < %s AND ordinal = 0",
        (tenant, ticks.job_id, row[0]),
    ).fetchone()
    wanted = round((row[0] - ticks.next_run_at).total_seconds())
    if told is None or told[0] != wanted:
        return [f"{wanted} seconds of {tenant} went by, and {told} are accounted for"]
    return []


def _ended(url: str, record: Record, since: datetime) -> Counter[_Run]:
    """How often each run was brought to an end, by the journal of a cell."""
    mine = {tenant.hex for tenant in record.tenants}
    ended: Counter[_Run] = Counter()
    with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
        for (body,) in connection.execute("SELECT body FROM journal WHERE at >= %s", (since,)):
            for tenant, parent, at, ordinal, _, state, *_ in msgspec.json.decode(
                body, type=JournalBody
            ).finished:
                if tenant in mine and state in TERMINAL:
                    ended[uuid.UUID(parent), at, ordinal] += 1
    return ended


def _out_of_order(record: Record) -> list[str]:
    """Acknowledgements under an earlier ownership that began after one under a later had ended: two acted."""
    of_tenant: defaultdict[uuid.UUID, list[Ack]] = defaultdict(list)
    for ack in record.acks:
        of_tenant[ack.tenant].append(ack)
    faults = []
    for tenant, acks in of_tenant.items():
        for one, other in itertools.permutations(acks, 2):
            if one.epoch < other.epoch and one.began > other.ended:
                late = f"{one.cell} acknowledged under {one.epoch}"
                faults.append(f"{tenant}: {late} after {other.cell} had under {other.epoch}")
                break
    return faults
