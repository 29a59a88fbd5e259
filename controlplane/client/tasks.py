"""What a worker's handler gets and may raise."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from controlplane.client.errors import ClockhouseError

P = TypeVar("P")


class Failed(ClockhouseError):
    """Raised by a handler: the task failed. Not `retryable`: another attempt would fail as well."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Reason(enum.Enum):
    """Why a handler is asked to stop."""

    CANCELLED = "the run was cancelled"
    SUPERSEDED = "another worker has claimed the run"
    LEASE_ENDED = "the lease ended before it could be renewed"
    DRAINING = "the worker is being shut down"


class Stopped(ClockhouseError):
    """Raised by `Task.check` in a handler that is to stop. Let it pass."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(kw_only=True)
class Task(Generic[P]):
    """One claimed run. Its members do not change; the methods may be called from any thread.

    `idempotency_key` is the same for every attempt; `epoch` grows with each claim: hand it to what
    you write to, as a fencing token, where a later claim's writes must win. Of a workflow's step there are
    its `type`, `workflow_id` and `step`; of one that undoes another, `compensates` is the idempotency key of
    what it undoes: refuse that key from now on.
    """

    queue: str
    run_id: str
    epoch: int
    idempotency_key: str
    payload: P
    attempt: int | None = None
    traceparent: str | None = None  # W3C trace context, for the calls that the work makes
    tracestate: str | None = None
    type: str | None = None
    workflow_id: str | None = None
    step: str | None = None
    compensates: str | None = None
    _reported: Any = field(default=None, repr=False)
    _reason: Reason | None = field(default=None, repr=False)
    _stopping: threading.Event = field(default_factory=threading.Event, repr=False)

    def progress(self, value: Any) -> None:
        """Tell how far it is; any JSON value. Sent with the next heartbeat."""
        self._reported = value

    @property
    def stopping(self) -> Reason | None:
        """Why to stop, once there is a reason. Coroutines are cancelled; other handlers look here,
        or call `check`, now and then."""
        return self._reason

    def check(self) -> None:
        """Raises `Stopped` once there is a reason to stop."""
        if self._reason is not None:
            raise Stopped(self._reason)

    def wait(self, seconds: float) -> None:
        """Sleep in a handler that is no coroutine; raises `Stopped` as soon as there is a reason."""
        self._stopping.wait(seconds)
        self.check()

    def stop(self, reason: Reason) -> bool:
        """Ask for the end (the worker does). Whether this was the first reason."""
        if self._reason is not None:
            return False
        self._reason = reason
        self._stopping.set()
        return True
