"""Making a plan true: a declaration by key for each job, in order. A job that was disabled is created
paused, in one request; one that is here already stays paused or not, as its people left it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controlplane.client.calls import Declared
from controlplane.client.documents import Job
from controlplane.client.errors import ApiError
from controlplane.client.importers.plan import Plan, PlannedJob
from controlplane.client.sync import Clockhouse


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
    body = {**planned.body, "paused": True} if planned.paused else planned.body
    done = client.jobs.put_by_key(planned.key, body)
    return Applied(planned=planned, done=done, paused=done.job.status == "PAUSED")


def left_behind(client: Clockhouse, plan: Plan, *, tag: str) -> Sequence[Job]:
    """Jobs of an earlier import of the same source (the crontab's name, the groups in the export) that
    the plan does not hold any more: an entry was edited into another, or removed. They go on running
    until somebody cancels them."""
    prefixes = tuple(plan.prefixes)
    wanted = {planned.key for planned in plan.jobs}
    found = []
    for state in ("SCHEDULED", "PAUSED"):
        found += [
            job
            for job in client.jobs.list(tag=tag, state=state)
            if job.key is not None and job.key.startswith(prefixes) and job.key not in wanted
        ]
    return found
