"""The trace of a run's attempts, whoever makes them: our executor, or a worker that polls. Pure."""

from __future__ import annotations

from cells.domain.job import NOW_ORDINAL, JobDefinition, ScheduleType
from cells.domain.trace import span_in, span_of, span_of_run, tracestate_of
from cells.records import Claim


def asker(claim: Claim) -> str | None:
    """The span whose trace the run belongs to. A recurring job's occurrences have traces of their
    own, only linked to the span that made the job: one trace would never end."""
    recurring = claim.definition.schedule.type in (ScheduleType.CRON, ScheduleType.RATE)
    return None if recurring and claim.key.ordinal == 0 else span_of(claim.traceparent)


def asked_by(of_run: str | None, of_job: str | None, definition: JobDefinition, ordinal: int) -> str | None:
    """What is kept of whoever asked for a run: of itself, else for its occurrence of whoever asked for the
    job. A run that was started by hand, or that tells of another, is nobody else's."""
    occurrence = NOW_ORDINAL if definition.schedule.type is ScheduleType.NOW else 0
    return of_job if of_run is None and ordinal == occurrence else of_run


def attempt_span(claim: Claim, run_id: str, bits: int) -> str:
    """The `traceparent` of one attempt. A run nobody traced has a trace of its own, the same for all its
    attempts. `bits`: 64 random ones."""
    asked = asker(claim)
    return span_of_run(run_id, bits) if asked is None else span_in(asked, bits)


def attempt_state(claim: Claim) -> str | None:
    """The `tracestate` of its attempts: that of whoever asked for the run."""
    return None if asker(claim) is None else tracestate_of(claim.traceparent)
