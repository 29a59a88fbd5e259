"""From what a worker says to what is stored: the completion of a pulled attempt. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cells.domain.callbacks import Notify
from cells.domain.job import Delivery
from cells.domain.outcome import RESULT_TOO_LONG, fingerprint
from cells.domain.retry import next_attempt
from cells.domain.run import RESULT_LIMIT, TERMINAL, Attempt, AttemptOutcome, RunState, beginning
from cells.ports import Completion
from cells.pulling import PulledRun

#: The error of an attempt that its worker ended because its run was cancelled.
CANCELLED = "cancelled"


class Outcome(enum.StrEnum):
    """How a worker says it went."""

    SUCCEEDED = "SUCCEEDED"  # the work is done
    FAILED = "FAILED"  # it is not; tried again if that may help
    CANCELLED = "CANCELLED"  # it was stopped, as somebody asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """A worker's word. `result` is JSON, whole; `error` is short."""

    epoch: int
    outcome: Outcome
    result: str | None = None
    error: str | None = None
    retryable: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What became of the run by an ending."""

    state: RunState
    attempt: int
    next_attempt_at: datetime | None
    region_policy: str = "HOME_ASYNC"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


@lru_cache(maxsize=1024)
def _text(ms: int) -> str:
    return f"{_instant(ms).isoformat()[:19]}.{ms % 1000:03d}Z"


def ending_completion(run: PulledRun, ending: Ending, *, finished_ms: int, rand: float) -> Completion:
    """How a claimed attempt ends by its worker's word. `rand` in [0, 1) is the retry's jitter."""
    claim = run.claim
    definition = claim.definition
    ending = _judged(run, ending)
    wait_ms: int | None = None
    reason: str | None = None
    error = ending.error
    if ending.outcome is Outcome.SUCCEEDED:
        state, outcome, error = RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, None
    elif ending.outcome is Outcome.CANCELLED:
        state, outcome, error = RunState.CANCELLED, AttemptOutcome.TERMINAL, CANCELLED
        reason = "cancelled"
    else:
        error = error or "the worker failed it"
        state, outcome = RunState.FAILED, AttemptOutcome.TERMINAL
        reason = error
        if ending.retryable:
            outcome = AttemptOutcome.RETRYABLE
            reason = f"attempts exhausted, the last one: {error}"
            if definition.delivery is Delivery.AT_MOST_ONCE:
                reason = f"not tried again (AT_MOST_ONCE): {error}"
            else:
                wait_ms = next_attempt(definition.retry_policy, claim.attempt, rand=rand)
                if wait_ms is not None:
                    state, reason = RunState.RETRY_WAIT, None
    target = definition.target.label
    body = None if ending.result is None else beginning(ending.result)
    whole = state is RunState.SUCCEEDED and definition.answers_workflow and body != ending.result
    return Completion(
        tenant_id=claim.tenant_id,
        key=claim.key,
        epoch=ending.epoch,
        state=state,
        attempt=Attempt(
            number=claim.attempt,
            epoch=ending.epoch,
            outcome=outcome,
            claimed_at=_text(claim.claimed_ms),
            started_at=_text(claim.claimed_ms),
            finished_at=_text(finished_ms),
            host=run.worker or "",
            error=error,
            body=body,
            retry_in_ms=wait_ms,
            series=claim.series,
        ),
        timer_at=None if wait_ms is None else _instant(finished_ms + wait_ms),
        reason=reason,
        fingerprint=fingerprint(target, None, error) if state is RunState.FAILED else None,
        target_id=target,
        started_ms=claim.claimed_ms,
        finished_ms=finished_ms,
        first_attempt_lag_ms=claim.claimed_ms - claim.due_ms if claim.attempt == 1 else None,
        region_policy=definition.region_policy,
        priority=claim.priority,
        concurrency_key=definition.concurrency_key,
        notify=Notify.of(definition, claim.version, claim.due_ms),
        shard=claim.shard,
        series=claim.series,
        result=ending.result if whole else None,
    )


def _judged(run: PulledRun, ending: Ending) -> Ending:
    """The word as it counts: a step that answers more than its workflow may keep has failed, for good."""
    result = ending.result
    if ending.outcome is not Outcome.SUCCEEDED or result is None or not run.claim.definition.answers_workflow:
        return ending
    if len(result.encode()) <= RESULT_LIMIT:
        return ending
    return replace(ending, outcome=Outcome.FAILED, error=RESULT_TOO_LONG, retryable=False)


def said_before(run: PulledRun, ending: Ending) -> Ended | None:
    """What an earlier ending of the same epoch did, if it was the same; else None."""
    ending = _judged(run, ending)
    for attempt in reversed(run.attempts):
        if attempt.epoch == ending.epoch and attempt.outcome is not AttemptOutcome.LOST:
            if _outcome_of(attempt) is not ending.outcome:
                return None
            last = run.claim.epoch == ending.epoch and run.state in TERMINAL
            next_at = None
            if attempt.retry_in_ms is not None and not last:
                ended = datetime.fromisoformat(attempt.finished_at).astimezone(UTC)
                next_at = ended + timedelta(milliseconds=attempt.retry_in_ms)
            return Ended(
                state=run.state if last else RunState.RETRY_WAIT,
                attempt=attempt.number,
                next_attempt_at=next_at,
                region_policy=run.claim.definition.region_policy,
            )
    return None


def _outcome_of(attempt: Attempt) -> Outcome:
    if attempt.outcome is AttemptOutcome.SUCCEEDED:
        return Outcome.SUCCEEDED
    return Outcome.CANCELLED if attempt.error == CANCELLED else Outcome.FAILED
