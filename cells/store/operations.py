"""Working on operations: a slice of jobs in each transaction, with the position after it.

Whoever has the operation's row locked works on it, so there is no lease to lose: a worker that dies
rolls its slice back, and the next one begins where the last commit ended.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec
import psycopg

from cells.bulk import LETTER_ACTIONS
from cells.domain.faults import ScheduleError
from cells.domain.job import JobState
from cells.domain.resuming import resumes_at
from cells.domain.windows import due_at
from cells.ports import (
    AllowanceExceeded,
    BulkAction,
    Conflict,
    Fence,
    JobRow,
    Member,
    OperationStep,
    QuotaExceeded,
    TenantConfig,
    Terminal,
)
from cells.store.allowance import PendingTimers
from cells.store.arrays import due_to_ms
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_one, fetch_row
from cells.store.job_changes import change_state
from cells.store.jobs import read_job
from cells.store.journal import Entry, seconds
from cells.store.letter_steps import step_letters
from cells.store.selections import TARGETS, operation_row, tell_operation

_CHUNK = 1000
#: Jobs changed in one transaction: a few milliseconds of locks.
_SLICE = 50
_FAILURES = 20


class Operations(StoreBase):
    """`step_operation`."""

    async def step_operation(self, *, host_id: int, now: datetime) -> OperationStep | None:
        """See `ports.Store.step_operation`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "operation_next")
            if row is None:
                return None
            tenant, epoch, config, operation_id, selection_id, action, position, total, rate, *_ = row
            if action in LETTER_ACTIONS:
                entry = Entry()
                step = await step_letters(connection, entry, row)
                await self._journal.append(connection, host_id, entry)
                return step
            slice_ = await _slice(
                connection, tenant, selection_id, position, min(_SLICE, max(1, rate), total)
            )
            work = _Slice(
                connection, Fence(tenant_id=tenant, epoch=epoch),
                msgspec.json.decode(config, type=TenantConfig), BulkAction(action), now, self._pending,
            )  # fmt: skip
            for job_id in sorted(slice_):  # one order for all who hold several jobs
                await work.change(job_id)
            after = await fetch_row(
                connection,
                "operation_advance",
                {"tenant": tenant, "operation": operation_id, **work.counts()},
            )
            work.entry.intent(tenant, "operation.step", operation_id.hex, position, position + len(slice_))
            found = operation_row(tenant, after)
            if found.state == "DONE":
                tell_operation(work.entry, "operation.ended", found, found.created_by)
            await self._journal.append(connection, host_id, work.entry)
            return OperationStep(operation=found, removed=work.removed, added=work.added)


async def _slice(
    connection: Connection, tenant: uuid.UUID, selection: uuid.UUID, position: int, size: int
) -> Sequence[uuid.UUID]:
    chunk, first = divmod(position, _CHUNK)
    row: Row | None = await fetch_one(
        connection,
        "operation_slice",
        {"tenant": tenant, "selection": selection, "chunk": chunk, "first": first + 1, "last": first + size},
    )
    return row[0] if row is not None else []


class _Slice:
    """One transaction's share of an operation."""

    def __init__(
        self,
        connection: Connection,
        fence: Fence,
        config: TenantConfig,
        action: BulkAction,
        now: datetime,
        pending: PendingTimers,
    ):
        self._connection = connection
        self._fence = fence
        self._config = config
        self._action = action
        self._now = now
        self._pending = pending
        self._done = 0
        self._unchanged = 0
        self._failures: list[tuple[str, str]] = []
        self.entry = Entry()
        self.removed: list[Member] = []
        self.added: list[Member] = []

    async def change(self, job_id: uuid.UUID) -> None:
        """Do it to one job; what stands in the way is noted, for this job and no other."""
        entry = Entry()
        try:
            # What one job's change did before it failed is undone alone.
            async with self._connection.transaction():
                await self._change(job_id, entry)
        except (ScheduleError, msgspec.MsgspecError):
            # A definition that this version cannot read must not hold up everybody's operations.
            self.fail(job_id, "the job cannot be read")
        except AllowanceExceeded:
            self.fail(job_id, "no room in strict_jobs_per_second")
        except QuotaExceeded as full:
            self.fail(job_id, f"no room in {full.scope}")
        except (Conflict, Terminal):
            self.fail(job_id, "the job was changed by somebody else just then")
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            if isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name is None:
                raise  # of a partition that came into being just then: all of it is tried again
            self.fail(job_id, "the job cannot be written")
        else:
            self.entry.absorb(entry)

    async def _change(self, job_id: uuid.UUID, entry: Entry) -> None:
        before = await read_job(self._connection, self._fence.tenant_id, job_id)
        if before is None:
            self.fail(job_id, "the job is no longer there")
            return
        state = TARGETS[self._action]
        if before.state is state or before.state in (JobState.CANCELLED, JobState.DONE):
            self._unchanged += 1
            return
        following: datetime | None = None
        timer: datetime | None = None
        if state is JobState.ACTIVE:
            following = resumes_at(before.definition.schedule, before.next_run_at, self._now)
            if following is None:
                state = JobState.DONE
            else:
                # As when one job is resumed: what went by is due now, and not late by the pause.
                timer = max(due_at(following, before.offset_ms), self._now)
        changed = await change_state(
            self._connection,
            entry,
            self._fence,
            self._config,
            job_id=job_id,
            state=state,
            base_version=before.version,
            next_run_at=following,
            due_at=timer,
            now=self._now,
            pending=self._pending,
        )
        self._done += changed
        self._unchanged += not changed
        self._tell(before, following, timer)

    def fail(self, job_id: uuid.UUID, reason: str) -> None:
        """It could not be done, and why."""
        self._failures.append((job_id.hex, reason))

    def counts(self) -> dict[str, object]:
        """For `operation_advance`."""
        reasons = Counter(reason for _, reason in self._failures)
        return {
            "done": self._done,
            "unchanged": self._unchanged,
            "failed": len(self._failures),
            "reasons": msgspec.json.encode(reasons).decode(),
            "failures": msgspec.json.encode(self._failures[:_FAILURES]).decode(),
        }

    def _tell(self, before: JobRow, following: datetime | None, timer: datetime | None) -> None:
        if before.due_at is not None and before.next_run_at is not None:
            self.removed.append(_member(before, before.next_run_at, before.due_at))
        if following is not None and timer is not None:
            self.added.append(_member(before, following, timer))


def _member(row: JobRow, at: datetime, due: datetime) -> Member:
    return Member(
        tenant_id=row.tenant_id,
        parent_id=row.job_id,
        scheduled_for=seconds(at),
        generation=row.version,
        priority=int(row.definition.priority),
        due_ms=due_to_ms(due),
        shard=row.shard,
    )
