"""What a transaction did, gathered while it does it and appended as its last statement."""

from __future__ import annotations

import bisect
import itertools
import uuid
from collections import defaultdict
from datetime import datetime

import msgspec

from cells.contract import Metric
from cells.domain.run import TERMINAL
from cells.ports import LAG_BOUNDS_MS, JournalBody
from cells.store.arrays import blobs, texts, uuids
from cells.store.database import Connection, run

_TERMINAL = frozenset(state.value for state in TERMINAL) - {"SKIPPED"}
_SUCCEEDED = frozenset({"SUCCEEDED", "SUCCEEDED_AFTER_CANCEL"})
#: The digit of a uuid that tells a workflow's execution from a job (`ids.is_workflow_run`).
_WORKFLOW_RUN = "7"
#: What a released claim is called in `finished`: it ended without an attempt.
RELEASED = "RELEASED"

_encode = msgspec.json.Encoder().encode


def is_job_run(parent: str, ordinal: int, state: str) -> bool:
    """Whether what ended is the run of a job, for good. Callbacks and the steps of workflows are none."""
    return state in _TERMINAL and ordinal >= 0 and parent[12] != _WORKFLOW_RUN


class _Calls:
    """Calls to one target."""

    __slots__ = ("failed", "ms_le", "ms_max", "ms_sum", "retried", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.retried = self.ms_sum = self.ms_max = 0
        self.ms_le = [0] * (len(LAG_BOUNDS_MS) + 1)

    def add(self, state: str, ms: int) -> None:
        if state in _SUCCEEDED:
            self.succeeded += 1
        elif state == "RETRY_WAIT":
            self.retried += 1
        else:
            self.failed += 1
        self.ms_sum += ms
        if ms > self.ms_max:
            self.ms_max = ms
        self.ms_le[bisect.bisect_left(LAG_BOUNDS_MS, ms)] += 1

    def absorb(self, other: _Calls) -> None:
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.retried += other.retried
        self.ms_sum += other.ms_sum
        self.ms_max = max(self.ms_max, other.ms_max)
        self.ms_le = [a + b for a, b in zip(self.ms_le, other.ms_le, strict=True)]

    def row(self) -> tuple[int, int, int, int, int, list[int]]:
        return self.succeeded, self.failed, self.retried, self.ms_sum, self.ms_max, self.ms_le


class Entry:
    """One journal row in the making."""

    __slots__ = ("_calls", "_counts", "claimed", "events", "finished", "intents")

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._calls: dict[tuple[str, str], _Calls] = {}
        self.claimed: list[tuple[str, str, int, int, int]] = []
        self.finished: list[tuple[str, str, int, int, int, str, int]] = []
        self.intents: list[tuple[str, str, str, int, int]] = []
        self.events: list[tuple[uuid.UUID, str, str, str | None, bytes]] = []

    def count(self, tenant: str, metric: Metric, region_policy: str, quantity: int) -> None:
        """Meter something, in the transaction that makes it true."""
        if quantity:
            self._counts[tenant, metric.value, region_policy] += quantity

    def history_bytes(self, tenant: str, region_policy: str, size: int) -> None:
        """Bytes appended to histories of workflows."""
        self.count(tenant, Metric.HISTORY_BYTES, region_policy, size)

    def ended(
        self,
        tenant: str,
        parent: str,
        scheduled_s: int,
        ordinal: int,
        epoch: int,
        state: str,
        *,
        lag_ms: int = -1,
        attempts: int = 1,
        egress_bytes: int = 0,
        region_policy: str,
    ) -> None:
        """An attempt ended, or a waiting run was cancelled (`attempts=0`)."""
        self.finished.append((tenant, parent, scheduled_s, ordinal, epoch, state, lag_ms))
        counts = self._counts
        if is_job_run(parent, ordinal, state):
            counts[tenant, "job_runs", region_policy] += 1
        if attempts:
            counts[tenant, "run_attempts", region_policy] += attempts
        if egress_bytes:
            counts[tenant, "egress_bytes", region_policy] += egress_bytes

    def called(self, tenant: str, target: str, state: str, ms: int) -> None:
        """A call to a target ended after that long."""
        calls = self._calls.get((tenant, target))
        if calls is None:
            calls = self._calls[tenant, target] = _Calls()
        calls.add(state, ms)

    def skipped(self, tenant: uuid.UUID, parent: uuid.UUID, at: datetime, epoch: int) -> None:
        """An occurrence that deliberately did not run. Nothing ran, so nothing is metered."""
        self.finished.append((tenant.hex, parent.hex, seconds(at), 0, epoch, "SKIPPED", -1))

    def intent(self, tenant: uuid.UUID, verb: str, name: str, base: int, made: int) -> None:
        """Somebody's decision: what it was based on and what it made."""
        self.intents.append((tenant.hex, verb, name, base, made))

    def event(self, tenant: uuid.UUID, type_: str, subject: str, actor: str | None, **data: object) -> None:
        """Something the tenant's people should hear of. `subject` is an id as they see it."""
        self.events.append((tenant, type_, subject, actor, _encode(data)))

    def absorb(self, other: Entry) -> None:
        """What a part of this transaction did, once it is known that it is kept."""
        for key, quantity in other._counts.items():
            self._counts[key] += quantity
        for target, calls in other._calls.items():
            self._calls.setdefault(target, _Calls()).absorb(calls)
        self.claimed += other.claimed
        self.finished += other.finished
        self.intents += other.intents
        self.events += other.events

    def body(self) -> bytes:
        """The row's body."""
        return _encode(
            JournalBody(
                counts=[(*key, quantity) for key, quantity in self._counts.items()],
                claimed=self.claimed,
                finished=self.finished,
                intents=self.intents,
                calls=[(*key, *calls.row()) for key, calls in self._calls.items()],
            )
        )


class Journal:
    """Appends rows; numbers them strictly upwards for this process."""

    def __init__(self) -> None:
        self._sequence = itertools.count(1)

    async def append(self, connection: Connection, host_id: int, entry: Entry) -> None:
        """Append `entry` and its events; the transaction fails where the host's or cell's lease has
        ended."""
        if entry.events:
            await run(
                connection,
                "events_append",
                {
                    "tenants": uuids([tenant for tenant, *_ in entry.events]),
                    "types": texts([type_ for _, type_, *_ in entry.events]),
                    "subjects": texts([subject for _, _, subject, *_ in entry.events]),
                    "actors": texts([actor for _, _, _, actor, _ in entry.events]),
                    "data": blobs([data for *_, data in entry.events]),
                },
            )
        await run(
            connection,
            "journal_append",
            {"host": host_id, "seq": next(self._sequence), "body": entry.body()},
        )


def seconds(at: datetime) -> int:
    """Whole seconds since 1970, as the journal and members name instants."""
    return int(at.timestamp())
