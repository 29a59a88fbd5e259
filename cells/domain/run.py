"""What a run is: the execution of one occurrence, attempt by attempt."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

import msgspec


class RunKind(enum.IntEnum):
    """Whose work a run is."""

    JOB = 0  # an occurrence (or a manual trigger) of a job
    ACTIVITY = 1  # a step of a workflow
    CALLBACK = 2  # tells somebody how a run of a job ended


class RunState(enum.StrEnum):
    """The life of a run. Transitions are in `transitions.py`; SQL CHECKs mirror both."""

    DUE = "DUE"  # created ahead of its claim (trigger, redrive, backfill); `timer_at` is set
    READY = "READY"  # waits for a pull worker's poll
    RUNNING = "RUNNING"  # claimed under `epoch`, leased
    RETRY_WAIT = "RETRY_WAIT"  # an attempt failed or was lost; `timer_at` is set
    SUCCEEDED = "SUCCEEDED"  # done
    FAILED = "FAILED"  # attempts exhausted or not retryable; in the DLQ
    CANCELLED = "CANCELLED"  # cancelled before or instead of success
    SUCCEEDED_AFTER_CANCEL = "SUCCEEDED_AFTER_CANCEL"  # the call could not be recalled
    UNKNOWN = "UNKNOWN"  # at-most-once and ambiguous; in the DLQ
    SKIPPED = "SKIPPED"  # an occurrence that deliberately did not run; see `reason`


TERMINAL: frozenset[RunState] = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.SUCCEEDED_AFTER_CANCEL,
        RunState.UNKNOWN,
        RunState.SKIPPED,
    }
)


class AttemptOutcome(enum.StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "SUCCEEDED"  # 2xx
    RETRYABLE = "RETRYABLE"  # 408, 425, 429, 5xx, timeout, no connection
    TERMINAL = "TERMINAL"  # any other answer; a retry would not help
    LOST = "LOST"  # its executor died or lost its lease; costs no attempt


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try of a run, as stored in `runs.attempts`. Instants are RFC 3339 with milliseconds."""

    number: int
    epoch: int
    outcome: AttemptOutcome
    claimed_at: str
    started_at: str | None = None  # when the call got its slot at the target
    finished_at: str
    host: str = ""
    status: int | None = None  # HTTP status
    error: str | None = None  # `timeout`, `connection refused`, ...
    body: str | None = None  # of the answer, cut at 4 KiB
    retry_in_ms: int | None = None  # what was waited before the next attempt
    series: int = 1  # attempts count anew in each: a redrive begins another
    sent: bool = True  # something may have reached the target: False only where certainly nothing did


#: The timer of a run that waits for something else than a time (for a place of its concurrency key).
NEVER = datetime(9999, 12, 31, tzinfo=UTC)
#: The lease of a run that is called outlives its call's timeout by this much.
LEASE_MARGIN_MS = 60_000
#: Bodies of answers are cut here (bytes).
BODY_LIMIT = 4096
#: What a step of a workflow may answer (bytes): its workflow gets it whole.
RESULT_LIMIT = 65_536
#: A run whose executors died this often is poison: it goes to the DLQ with that reason.
POISON_DEATHS = 10


def beginning(body: str) -> str:
    """As much of an answer's body as an attempt keeps."""
    if len(body) * 4 <= BODY_LIMIT:
        return body
    return body.encode()[:BODY_LIMIT].decode("utf-8", "ignore")


def run_generation(series: int, attempt: int) -> int:
    """`Member.generation` of a waiting run."""
    return series * 65536 + attempt
