"""How long a transaction's decisions take: the locks that it holds are many tenants'."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors

from cells.ports import Retryable

#: Decisions of one transaction take no longer together, but for the last one (seconds); one that took longer
#: alone is what a transaction that failed with it failed for.
PLANNING_SECONDS = 1.5
#: A transaction that was lost after so long was lost for that (seconds): idle ones end after ten.
TRANSACTION_SECONDS = 8.0
_TOO_LONG = (errors.QueryCanceled, errors.TransactionTimeout, errors.IdleInTransactionSessionTimeout)
#: A tenant and one of its executions.
Key = tuple[uuid.UUID, uuid.UUID]


class SlowDeciding:
    """Of one transaction."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._planned = 0.0
        self._longest = 0.0
        self._longest_key: Key | None = None

    def has_time(self) -> bool:
        """Whether another one may be decided in this transaction."""
        return self._planned < PLANNING_SECONDS

    @contextmanager
    def measured(self, key: Key) -> Iterator[None]:
        """This one is decided."""
        started = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - started
            self._planned += took
            if took > self._longest:
                self._longest, self._longest_key = took, key

    def is_why(self, fault: Retryable) -> bool:
        """Whether the transaction failed for taking too long."""
        too_long = isinstance(fault.__cause__, _TOO_LONG)
        return too_long or time.monotonic() - self._began > TRANSACTION_SECONDS

    @property
    def key(self) -> Key | None:
        """The one that alone took too long, if one did."""
        return self._longest_key if self._longest > PLANNING_SECONDS else None
