import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cells.domain.ids import RunKey
from cells.domain.job import Activity, JobDefinition, RetryPolicy, Schedule, ScheduleType, TargetRef
from cells.domain.outcome import RESULT_TOO_LONG
from cells.domain.run import BODY_LIMIT, RESULT_LIMIT, AttemptOutcome, RunState
from cells.execution.recording import Answer, Instants, completion_of, instant, unusable
from cells.ports import Claim, Completion

DUE = 1_790_000_000_000
POLICY = RetryPolicy(max_attempts=3, initial_backoff_seconds=10, max_backoff_seconds=600)


def claim(attempt: int = 1) -> Claim:
    return Claim(
        tenant_id=uuid.UUID(int=1),
        key=RunKey(parent_id=uuid.UUID(int=2), scheduled_for=instant(DUE)),
        epoch=1 << 20,
        series=1,
        attempt=attempt,
        priority=2,
        shard=7,
        version=1,
        definition=JobDefinition(
            schedule=Schedule(type=ScheduleType.NOW), target=TargetRef(target_id="tgt_a"), retry_policy=POLICY
        ),
        payload=None,
        due_ms=DUE,
        released_ms=DUE + 1,
        claimed_ms=DUE + 2,
        lease_ms=90_000,
    )


def ended(answer: Answer, *, attempt: int = 1, rand: float = 0.5):  # type: ignore[no-untyped-def]
    return completion_of(
        claim(attempt), answer, started_ms=DUE + 5, finished_ms=DUE + 1_010, host="h", rand=rand
    )


def test_success() -> None:
    done = ended(Answer(status=204, body="", sent_bytes=2))
    assert done.state is RunState.SUCCEEDED
    assert done.attempt.outcome is AttemptOutcome.SUCCEEDED
    assert (done.timer_at, done.reason, done.fingerprint) == (None, None, None)
    assert done.first_attempt_lag_ms == 5
    assert done.egress_bytes == 2
    assert done.attempt.claimed_at == "2026-09-21T14:13:20.002Z"
    assert done.attempt.started_at == "2026-09-21T14:13:20.005Z"
    assert done.attempt.finished_at == "2026-09-21T14:13:21.010Z"


def test_a_step_answers_all_of_it() -> None:
    step = Activity(workflow_id="w", step="s", key="w:s")
    body = "x" * (RESULT_LIMIT - 1)

    def done(activity: Activity | None, *, cut: bool = False) -> Completion:
        made = replace(claim(), definition=msgspec.structs.replace(claim().definition, activity=activity))
        answer = Answer(status=200, body=body, cut=cut)
        return completion_of(made, answer, started_ms=DUE + 5, finished_ms=DUE + 6, host="h", rand=0.5)

    whole = done(step)
    assert (whole.state, whole.result, whole.attempt.body) == (RunState.SUCCEEDED, body, body[:BODY_LIMIT])
    assert done(None, cut=True).result is None
    failed = done(step, cut=True)
    assert (failed.state, failed.reason, failed.result) == (RunState.FAILED, RESULT_TOO_LONG, None)
    assert (failed.attempt.outcome, failed.attempt.status) == (AttemptOutcome.TERMINAL, 200)
    # Nobody reads what undoing something has answered.
    undo = done(msgspec.structs.replace(step, forward_key="w:r"), cut=True)
    assert (undo.state, undo.result) == (RunState.SUCCEEDED, None)


@pytest.mark.parametrize("answer", [Answer(status=503), Answer(status=429), Answer(error="timeout")])
def test_a_retryable_failure_waits_with_jitter(answer: Answer) -> None:
    done = ended(answer)
    assert done.state is RunState.RETRY_WAIT
    assert done.attempt.outcome is AttemptOutcome.RETRYABLE
    assert done.timer_at == instant(DUE + 1_010) + timedelta(seconds=5)
    assert done.attempt.retry_in_ms == 5_000
    assert (done.reason, done.fingerprint) == (None, None)


def test_retry_after_is_a_lower_bound() -> None:
    assert ended(Answer(status=503, retry_after="120"), rand=0.0).attempt.retry_in_ms == 120_000
    date = "Mon, 21 Sep 2026 14:14:21 GMT"
    assert ended(Answer(status=503, retry_after=date), rand=0.0).attempt.retry_in_ms == 59_990
    assert ended(Answer(status=503, retry_after="soon"), rand=0.0).attempt.retry_in_ms == 0


def test_the_last_attempt_fails_the_run() -> None:
    done = ended(Answer(status=503, body="down"), attempt=3)
    assert done.state is RunState.FAILED
    assert done.reason == "attempts exhausted, the last one: HTTP 503"
    assert done.fingerprint == ended(Answer(status=503, body="other"), attempt=3).fingerprint
    assert done.timer_at is None
    assert done.first_attempt_lag_ms is None


@pytest.mark.parametrize("status", [301, 302, 400, 401, 404, 409, 410, 422])
def test_a_terminal_answer_fails_at_once(status: int) -> None:
    done = ended(Answer(status=status))
    assert done.state is RunState.FAILED
    assert done.attempt.outcome is AttemptOutcome.TERMINAL
    assert done.reason == f"HTTP {status}"
    assert done.target_gone == (status == 410)


@pytest.mark.parametrize(("state", "said"), [("DISABLED", "DISABLED"), (None, "not registered")])
def test_an_unusable_target_fails_at_once_with_the_reason(state: str | None, said: str) -> None:
    done = completion_of(claim(), unusable(state), started_ms=None, finished_ms=DUE, host="h", rand=0.0)
    assert done.state is RunState.FAILED
    assert done.reason == f"target not usable: {said}"
    assert (done.started_ms, done.attempt.started_at, done.first_attempt_lag_ms) == (None, None, None)
    assert done.egress_bytes == 0


def test_instants_over_the_edge_of_a_second() -> None:
    instants = Instants()
    for ms in (0, 999, 1000, 1_790_000_000_123, 1_790_000_000_124, 5):
        want = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"
        assert instants.text(ms) == want


def test_a_redriven_run_is_not_late() -> None:
    done = completion_of(
        replace(claim(), series=2), Answer(status=204), started_ms=DUE + 5, finished_ms=DUE + 6, host="h",
        rand=0.5,
    )  # fmt: skip
    assert done.first_attempt_lag_ms is None
