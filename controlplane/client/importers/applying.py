"""Making a plan true: a declaration by key for each job, in order. A job that was disabled is paused when
it is created; one that is here already stays paused or not, as its people left it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from controlplane.client.calls import Declared
from controlplane.client.errors import ApiError
from controlplane.client.importers.plan import Plan, PlannedJob
from controlplane.client.sync import Clockhouse

#: A job that shall be paused is not created this shortly before its next occurrence: it might run
#: in the moment between the two.
_QUIET_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """What became of one job of a plan: `done`, or `error`."""

    planned: PlannedJob
    done: Declared | None = None
    paused: bool = False
    error: ApiError | None = None

    @property
    def outcome(self) -> str:
        """In a word."""
        return "refused" if self.done is None else self.done.outcome


def apply(client: Clockhouse, plan: Plan) -> Iterator[Applied]:
    """Apply job by job; a job that the server refuses does not keep the others from coming."""
    for planned in plan.jobs:
        try:
            yield _apply(client, planned)
        except ApiError as error:
            if error.status in (401, 403):
                raise
            yield Applied(planned=planned, error=error)


def _apply(client: Clockhouse, planned: PlannedJob) -> Applied:
    if planned.paused:
        _wait_for_quiet(client, planned)
    done = client.jobs.put_by_key(planned.key, planned.body)
    if planned.paused and done.created and done.job.status == "SCHEDULED":
        client.jobs.pause(done.job.job_id)
        return Applied(planned=planned, done=done, paused=True)
    return Applied(planned=planned, done=done, paused=done.job.status == "PAUSED")


def _wait_for_quiet(client: Clockhouse, planned: PlannedJob) -> None:
    coming = client.schedules.preview(planned.body["schedule"], count=1).occurrences
    if coming:
        left = (coming[0].at - datetime.now(UTC)).total_seconds()
        if 0 <= left < _QUIET_SECONDS:
            time.sleep(left + 1.0)
