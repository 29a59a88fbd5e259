"""The API's requests about what happened: runs, dead letters, statistics, events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.client.decoding import decode
from controlplane.client.documents import DeadLetter, DeadLetterGroup, Event, Run, Stats
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Answer, Call, path, query


# --- runs --------------------------------------------------------------------------------
def list_runs(
    *,
    job_id: str | None = None,
    state: str | None = None,
    target: str | None = None,
    scheduled_from: datetime | str | None = None,
    scheduled_until: datetime | str | None = None,
    due_from: datetime | str | None = None,
    due_until: datetime | str | None = None,
    finished_from: datetime | str | None = None,
    finished_until: datetime | str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Run]]:
    """Runs, the newest scheduled first. All conditions hold; `state` may be several, separated by commas.
    `due_from` and `finished_from` look at runs that were scheduled at most a day earlier, unless
    `scheduled_from` is given."""
    return Call(
        method="GET",
        path="/v1/runs",
        read=reads_page(Run),
        query=query(
            job_id=job_id,
            state=state,
            target=target,
            scheduled_from=scheduled_from,
            scheduled_until=scheduled_until,
            due_from=due_from,
            due_until=due_until,
            finished_from=finished_from,
            finished_until=finished_until,
            limit=limit,
            cursor=cursor,
        ),
    )


def get_run(run_id: str) -> Call[Run]:
    """A run with its attempts, and where its time went."""
    return Call(method="GET", path=path("/v1/runs/{run_id}", run_id=run_id), read=reads(Run))


def cancel_run(run_id: str) -> Call[Run]:
    """End a waiting run, or ask one under way to end."""
    return Call(
        method="POST",
        path=path("/v1/runs/{run_id}", run_id=run_id) + ":cancel",
        read=reads(Run),
        repeatable=True,
    )


# --- dead letters, statistics, events ------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetters(Page[DeadLetter]):
    """A page of dead letters; the first one has the groups, too. `truncated`: there are more dead letters,
    or more groups, than the groups tell of."""

    groups: Sequence[DeadLetterGroup] = ()
    truncated: bool = False


def list_dead_letters(
    *,
    target: str | None = None,
    fingerprint: str | None = None,
    job_id: str | None = None,
    reason: str | None = None,
    failed_from: datetime | str | None = None,
    failed_until: datetime | str | None = None,
    groups: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[DeadLetters]:
    """Runs that failed for good (`reason`: FAILED, UNKNOWN or POISON), the latest first; without the groups
    they form if `groups` is false."""
    return Call(
        method="GET",
        path="/v1/dlq",
        read=_read_dead_letters,
        query=query(
            target=target,
            fingerprint=fingerprint,
            job_id=job_id,
            reason=reason,
            failed_from=failed_from,
            failed_until=failed_until,
            groups=groups,
            limit=limit,
            cursor=cursor,
        ),
    )


def _read_dead_letters(answer: Answer) -> DeadLetters:
    page = reads_page(DeadLetter)(answer)
    groups = page.document.get("groups") or ()
    return DeadLetters(
        items=page.items,
        next_cursor=page.next_cursor,
        document=page.document,
        groups=tuple(decode(DeadLetterGroup, group) for group in groups),
        truncated=page.document.get("truncated") is True,
    )


def read_stats(
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    job_id: str | None = None,
    target_id: str | None = None,
) -> Call[Stats]:
    """Runs per minute, and how late they started; the last hour if nothing is said. Of one job, or of
    the calls of one target, if it is named."""
    return Call(
        method="GET",
        path="/v1/stats",
        read=reads(Stats),
        query=query(since=since, until=until, job_id=job_id, target_id=target_id),
    )


def list_events(
    *,
    kind: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    wait: int | None = None,
) -> Call[Page[Event]]:
    """What people should hear of, in the order it was committed: the latest, or all that are kept
    with `cursor="start"`; of one `kind` if given. Keep the last `next_cursor` to go on from there;
    `wait` is for how many seconds the answer may be held back until there is something new."""
    return Call(
        method="GET",
        path="/v1/events",
        read=reads_page(Event),
        query=query(type=kind, limit=limit, cursor=cursor, wait=wait),
    )


def read_metrics() -> Call[str]:
    """The tenant's figures as its Prometheus scrapes them: runs by outcome, lag, what waits, each queue."""
    return Call(method="GET", path="/v1/metrics", read=lambda answer: answer.body.decode())
