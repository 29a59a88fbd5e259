"""From an answer to what is stored: the completion of one attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cells.domain.callbacks import Notify
from cells.domain.job import Delivery
from cells.domain.outcome import RESULT_TOO_LONG, CallError, classify, fingerprint
from cells.domain.retry import next_attempt, parse_retry_after
from cells.domain.run import BODY_LIMIT, RESULT_LIMIT, Attempt, AttemptOutcome, RunState, beginning
from cells.ports import Claim, Completion

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GONE = 410
_DEAD = (RunState.FAILED, RunState.UNKNOWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back from a target, or why nothing did."""

    status: int | None = None
    error: str | None = None  # a `CallError`, perhaps with `: detail`
    body: str | None = None  # cut at what the caller wanted of it
    cut: bool = False  # there was more
    retry_after: str | None = None  # the header as it was sent
    ratelimit: str | None = None  # the field as it was sent
    ratelimit_policy: str | None = None
    sent_bytes: int = 0  # of the request body
    reached: bool = True  # something may have been sent: False only where certainly nothing was


class Instants:
    """Formats epoch milliseconds as RFC 3339; keeps the part that is the same for a second."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def text(self, ms: int) -> str:
        """`2026-09-28T12:00:00.123Z`."""
        second, rest = divmod(ms, 1000)
        if second != self._second:
            self._second = second
            self._prefix = f"{instant(second * 1000):%Y-%m-%dT%H:%M:%S}"
        return f"{self._prefix}.{rest:03d}Z"


def instant(ms: int) -> datetime:
    """The instant of epoch milliseconds."""
    return _EPOCH + timedelta(milliseconds=ms)


_claimed, _started, _finished = Instants(), Instants(), Instants()


def wanted_of(claim: Claim) -> int:
    """How much of an answer is read (bytes): a workflow reads what its steps answer."""
    return RESULT_LIMIT if claim.definition.answers_workflow else BODY_LIMIT


def completion_of(
    claim: Claim, answer: Answer, *, started_ms: int | None, finished_ms: int, host: str, rand: float
) -> Completion:
    """How this attempt ends the run, or when the next one is due.

    `started_ms` is when the call got its slot at the target, None if it was never made. `rand`
    in [0, 1) is the retry's jitter.
    """
    outcome = classify(answer.status, answer.error)
    step = claim.definition.answers_workflow
    if step and answer.cut and outcome is AttemptOutcome.SUCCEEDED:
        answer, outcome = replace(answer, error=RESULT_TOO_LONG), AttemptOutcome.TERMINAL
    body = None if answer.body is None else beginning(answer.body)
    wait_ms: int | None = None
    state = RunState.FAILED
    reason: str | None = None
    if outcome is AttemptOutcome.SUCCEEDED:
        state = RunState.SUCCEEDED
    else:
        once = claim.definition.delivery is Delivery.AT_MOST_ONCE and answer.reached
        if once and outcome is AttemptOutcome.RETRYABLE:
            state, reason = _not_again(answer)
        elif outcome is AttemptOutcome.RETRYABLE:
            wait_ms = next_attempt(
                claim.definition.retry_policy,
                claim.attempt,
                rand=rand,
                retry_after_ms=_retry_after(answer, finished_ms),
            )
        if wait_ms is None and reason is None:
            what = answer.error or f"HTTP {answer.status}"
            retried = outcome is AttemptOutcome.RETRYABLE
            reason = f"attempts exhausted, the last one: {what}" if retried else what
        elif wait_ms is not None:
            state = RunState.RETRY_WAIT
    target_id = claim.definition.target.label
    return Completion(
        tenant_id=claim.tenant_id,
        key=claim.key,
        epoch=claim.epoch,
        state=state,
        attempt=Attempt(
            number=claim.attempt,
            epoch=claim.epoch,
            outcome=outcome,
            claimed_at=_claimed.text(claim.claimed_ms),
            started_at=None if started_ms is None else _started.text(started_ms),
            finished_at=_finished.text(finished_ms),
            host=host,
            status=answer.status,
            error=answer.error,
            body=body,
            retry_in_ms=wait_ms,
            series=claim.series,
            sent=answer.reached,
        ),
        timer_at=None if wait_ms is None else instant(finished_ms + wait_ms),
        reason=reason,
        fingerprint=fingerprint(target_id, answer.status, answer.error) if state in _DEAD else None,
        target_id=target_id,
        started_ms=started_ms,
        finished_ms=finished_ms,
        first_attempt_lag_ms=_lag(claim, started_ms),
        egress_bytes=answer.sent_bytes,
        region_policy=claim.definition.region_policy,
        target_gone=answer.status == _GONE,
        priority=claim.priority,
        shard=claim.shard,
        series=claim.series,
        concurrency_key=claim.definition.concurrency_key,
        notify=Notify.of(claim.definition, claim.version, claim.due_ms),
        result=answer.body if step and state is RunState.SUCCEEDED and body != answer.body else None,
    )


def _lag(claim: Claim, started_ms: int | None) -> int | None:
    """How late the first call was. What was redriven has waited for somebody, not for us."""
    if started_ms is None or claim.attempt > 1 or claim.series > 1:
        return None
    return started_ms - claim.due_ms


def _not_again(answer: Answer) -> tuple[RunState, str]:
    """How a run that may be called but once ends, where others are tried again. A 4xx is the
    target's word that it did nothing; of all else nobody knows what became."""
    if answer.error is None and answer.status is not None and answer.status < 500:
        return RunState.FAILED, f"HTTP {answer.status}, and it may be called only once"
    what = answer.error or f"HTTP {answer.status}"
    return RunState.UNKNOWN, f"it may have run, and may be called only once: {what}"


def unusable(state: str | None) -> Answer:
    """The answer of a target that may not be called: not approved (any more), or unknown (None)."""
    return Answer(reached=False, error=f"{CallError.TARGET}: {'not registered' if state is None else state}")


def _retry_after(answer: Answer, finished_ms: int) -> int | None:
    return None if answer.retry_after is None else parse_retry_after(answer.retry_after, instant(finished_ms))
