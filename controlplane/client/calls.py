"""The API's requests about jobs and schedules. Pure: each function says what to send and how to read
the answer. `run_calls.py` has those about what happened, `management.py` those about targets,
people, keys and money."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document, decode
from controlplane.client.documents import (
    Job,
    JobStatus,
    Occurrence,
    PastOccurrence,
    Preview,
    Run,
)
from controlplane.client.errors import Fault, UnexpectedAnswer
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.specs import ABSENT, NewJob, Schedule, as_body
from controlplane.client.wire import Answer, Call, faults_in, if_match, path, query, without_none

#: Items in one request of `batch`.
MOST_IN_A_BATCH = 1000


# --- jobs --------------------------------------------------------------------------------
def create_job(job: NewJob | Mapping[str, Any], *, idempotency_key: str | None = None) -> Call[Job]:
    """Create a job. A repetition under the same key answers with the first job."""
    return Call(
        method="POST",
        path="/v1/jobs",
        read=reads(Job),
        body=as_body(job),
        keyed=True,
        idempotency_key=idempotency_key,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What a declaration did: the job, whether it is new, and whether anything had to be changed."""

    job: Job
    created: bool
    changed: bool

    @property
    def outcome(self) -> str:
        """In a word: created, changed or unchanged."""
        return "created" if self.created else "changed" if self.changed else "unchanged"


def put_job_by_key(
    key: str,
    job: NewJob | Mapping[str, Any],
    *,
    version: int | str | None = None,
    only_create: bool = False,
) -> Call[Declared]:
    """Make the job of that key what is given, whether it is there or not; saying the same again changes
    nothing. A paused job stays paused, a cancelled one comes back. `version`: only if it still has
    that version; `only_create`: only if there is none. Else `PreconditionFailed`."""
    body = as_body(job)
    body.pop("key", None)
    return Call(
        method="PUT",
        path=path("/v1/jobs/by-key/{key}", key=key),
        read=_read_declared,
        body=body,
        headers={**if_match(version), **({"If-None-Match": "*"} if only_create else {})},
        # What was done under a condition would be refused the second time: its own success broke it.
        repeatable=not only_create and version is None,
    )


def _read_declared(answer: Answer) -> Declared:
    document = answer.document()
    created = answer.status == 201
    return Declared(
        job=decode(Job, document), created=created, changed=bool(document.get("changed", created))
    )


def get_job_by_key(key: str) -> Call[Job]:
    """The job of that key, with its latest runs."""
    return Call(method="GET", path=path("/v1/jobs/by-key/{key}", key=key), read=reads(Job))


def cancel_job_by_key(key: str) -> Call[JobStatus]:
    """Cancel the job of that key. Declared again, the same job runs again."""
    return Call(method="DELETE", path=path("/v1/jobs/by-key/{key}", key=key), read=reads(JobStatus))


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchItem(Document):
    """What became of one job of a batch: `job_id` and its times, or `code`, `detail` and `faults`.
    `replayed`: it was there already, under its idempotency key."""

    index: int
    status: int
    job_id: str | None = None
    next_run_at: datetime | None = None
    due_at: datetime | None = None
    replayed: bool = False
    code: str | None = None
    detail: str | None = None
    faults: Sequence[Fault] = ()

    @property
    def ok(self) -> bool:
        """Whether the job is there."""
        return 200 <= self.status < 300


def create_jobs(
    jobs: Iterable[NewJob | Mapping[str, Any]], *, idempotency_key: str | None = None
) -> Call[Sequence[BatchItem]]:
    """Create up to 1,000 jobs at once. Each has a result of its own, in order."""
    bodies = [as_body(job) for job in jobs]
    if len(bodies) > MOST_IN_A_BATCH:
        raise ValueError(f"a batch has at most {MOST_IN_A_BATCH} jobs; these are {len(bodies)}")
    return Call(
        method="POST",
        path="/v1/jobs:batch",
        read=_read_batch,
        body={"jobs": bodies},
        keyed=True,
        idempotency_key=idempotency_key,
    )


def _read_batch(answer: Answer) -> Sequence[BatchItem]:
    results = answer.document().get("results")
    if not isinstance(results, list):
        raise UnexpectedAnswer("a batch has no results")
    return tuple(_batch_item(index, result) for index, result in enumerate(results))


def _batch_item(index: int, result: Mapping[str, Any]) -> BatchItem:
    item = decode(BatchItem, {**result, "index": index, "faults": []})
    if not isinstance(problem := result.get("problem"), Mapping):
        return item
    return dataclasses.replace(
        item,
        code=problem.get("code"),
        detail=problem.get("detail"),
        faults=tuple(faults_in(problem.get("errors"))),
    )


def get_job(job_id: str) -> Call[Job]:
    """A job with its latest runs."""
    return Call(method="GET", path=path("/v1/jobs/{job_id}", job_id=job_id), read=reads(Job))


def list_jobs(
    *,
    state: str | None = None,
    target: str | None = None,
    tag: str | None = None,
    name_prefix: str | None = None,
    due_from: datetime | str | None = None,
    due_until: datetime | str | None = None,
    include: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Job]]:
    """Jobs, newest first, without payloads. All conditions hold. `limit` is the page's size;
    `include="last_run"`: each with its latest run."""
    return Call(
        method="GET",
        path="/v1/jobs",
        read=reads_page(Job),
        query=query(
            state=state,
            target=target,
            tag=tag,
            name_prefix=name_prefix,
            due_from=due_from,
            due_until=due_until,
            include=include,
            limit=limit,
            cursor=cursor,
        ),
    )


def edit_job(job_id: str, changes: Mapping[str, Any], *, version: int | str | None = None) -> Call[Job]:
    """Change some members of a job (a JSON merge patch: None takes one away). `version`: only if
    the job still has that version, else `PreconditionFailed`."""
    return Call(
        method="PATCH",
        path=path("/v1/jobs/{job_id}", job_id=job_id),
        read=reads(Job),
        body=as_body(changes),
        headers=if_match(version),
    )


def cancel_job(job_id: str) -> Call[JobStatus]:
    """Cancel a job and its waiting runs."""
    return Call(method="DELETE", path=path("/v1/jobs/{job_id}", job_id=job_id), read=reads(JobStatus))


def _verb(job_id: str, verb: str) -> Call[Job]:
    return Call(
        method="POST",
        path=path("/v1/jobs/{job_id}", job_id=job_id) + f":{verb}",
        read=reads(Job),
        repeatable=True,
    )


def pause_job(job_id: str) -> Call[Job]:
    """Stop a job's timer. Runs under way go on."""
    return _verb(job_id, "pause")


def resume_job(job_id: str) -> Call[Job]:
    """Let a paused job go on at its first occurrence after now; a one-off runs at its time, or at once."""
    return _verb(job_id, "resume")


def trigger_job(job_id: str, *, payload: Any = ABSENT, idempotency_key: str | None = None) -> Call[Run]:
    """Start a run by hand, now. `payload` stands in for the job's own, this once."""
    return Call(
        method="POST",
        path=path("/v1/jobs/{job_id}", job_id=job_id) + ":trigger",
        read=reads(Run),
        body={} if payload is ABSENT else {"payload": payload},
        keyed=True,
        idempotency_key=idempotency_key,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrences:
    """A job's past occurrences with their verdicts, newest first, and the coming ones."""

    past: Sequence[PastOccurrence]
    next: Sequence[Occurrence]
    next_cursor: str | None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


def job_occurrences(
    job_id: str,
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    count: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Occurrences]:
    """Every occurrence, run or not, and why; and the next `count`."""
    return Call(
        method="GET",
        path=path("/v1/jobs/{job_id}/occurrences", job_id=job_id),
        read=_read_occurrences,
        query=query(from_=since, until=until, count=count, limit=limit, cursor=cursor),
    )


def _read_occurrences(answer: Answer) -> Occurrences:
    document = answer.document()
    return Occurrences(
        past=tuple(decode(PastOccurrence, item) for item in document.get("past") or ()),
        next=tuple(decode(Occurrence, item) for item in document.get("next") or ()),
        next_cursor=document.get("next_cursor"),
        document=document,
    )


# --- schedules ---------------------------------------------------------------------------
def preview_schedule(
    schedule: Schedule | Mapping[str, Any], *, after: datetime | str | None = None, count: int | None = None
) -> Call[Preview]:
    """What a schedule would do: its next occurrences after an instant (now), and its zone's next two
    clock changes."""
    return Call(
        method="POST",
        path="/v1/schedules:preview",
        read=reads(Preview),
        body=without_none(schedule=as_body(schedule), after=as_body(after), count=count),
        repeatable=True,
    )
