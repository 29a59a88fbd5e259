"""Tasks that this process handed to workers, so that their endings need not read them again.

What an ending needs to know of its claim does not change while the claim holds: the version it was claimed
with, the attempt, when. Whether it still holds is decided by the write. An ending of a claim that is not
here (another process handed it out, or it was let go) reads its run.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime

from cells.domain.ids import RunKey
from cells.domain.run import RunState
from cells.pulling import Held, PulledRun, PulledTask

#: Claims that are kept, and bytes of their payloads; the oldest go first.
KEPT, KEPT_BYTES = 20_000, 8 << 20

#: Integers and an instant: a uuid's own hash is a call into Python.
_Key = tuple[int, int, datetime, int, int]


class HandedOut:
    """Claims with the workers that hold them, until they end or are too many."""

    def __init__(self, *, kept: int = KEPT, kept_bytes: int = KEPT_BYTES):
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._claims: OrderedDict[_Key, tuple[PulledTask, str]] = OrderedDict()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._claims)

    def keep(self, tasks: Iterable[PulledTask], worker_id: str) -> None:
        """A worker got these."""
        for task in tasks:
            claim = task.claim
            self._claims[_key(claim.tenant_id, claim.key, claim.epoch)] = (task, worker_id)
            self._bytes += len(claim.payload or b"")
        while len(self._claims) > self._kept or self._bytes > self._kept_bytes:
            _, (dropped, _) = self._claims.popitem(last=False)
            self._bytes -= len(dropped.claim.payload or b"")

    def take(self, held: Held) -> PulledRun | None:
        """What a claim's run was when it was handed out, once; None if it is not known here."""
        found = self._claims.pop(_key(held.tenant_id, held.key, held.epoch), None)
        if found is None:
            return None
        task, worker_id = found
        self._bytes -= len(task.claim.payload or b"")
        return PulledRun(
            claim=task.claim, state=RunState.RUNNING, cancel_requested=False, worker=worker_id, attempts=()
        )


def _key(tenant_id: uuid.UUID, key: RunKey, epoch: int) -> _Key:
    return tenant_id.int, key.parent_id.int, key.scheduled_for, key.ordinal, epoch
