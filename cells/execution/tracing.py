"""The span of an attempt: from whoever asked for the run, to the target."""

from __future__ import annotations

from cells.domain import ids
from cells.domain.trace import span_of, trace_id
from cells.execution.lanes import Work
from cells.execution.recording import Answer
from cells.observability.traces import Traces
from cells.spans import asker, attempt_span


def trace_of(work: Work) -> str:
    """The trace that a run's attempts are in, for logs."""
    return trace_id(attempt_span(work.claim, work.run_id, 1))


def record(
    traces: Traces, work: Work, span: str, answer: Answer, *, began_ms: float, ended_ms: float
) -> None:
    """Keep the span of a call that was made."""
    claim = work.claim
    target = claim.definition.target
    url = work.target.url(target.path)
    attributes: dict[str, str | int] = {
        "http.request.method": target.method,
        "server.address": url.host or "",
        "server.port": url.port or 0,
        "clockhouse.tenant": ids.encode(ids.TENANT, claim.tenant_id),
        "clockhouse.job": ids.encode(ids.JOB, claim.key.parent_id),
        "clockhouse.run": work.run_id,
        "clockhouse.target": target.target_id,
        "clockhouse.attempt": claim.attempt,
        "clockhouse.epoch": claim.epoch,
        "clockhouse.late_ms": round(began_ms - claim.due_ms),
    }
    if answer.status is not None:
        attributes["http.response.status_code"] = answer.status
    if answer.error is not None:
        attributes["error.type"] = answer.error.partition(":")[0]
    traces.record(
        f"{target.method} {target.target_id}",
        span=span,
        parent=asker(claim),
        link=span_of(claim.traceparent),
        kind="client",
        started_ms=began_ms,
        ended_ms=ended_ms,
        attributes=attributes,
        failed=answer.error is not None or (answer.status or 0) >= 400,
    )
