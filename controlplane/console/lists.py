"""Reading several things of a cell for one page, and keyset pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from cells.domain.job import QUEUE_LABEL, WORKFLOW_LABEL
from controlplane.console.axis import Bar, Due
from controlplane.console.cells_client import path
from controlplane.console.job_form import LOCAL_TIME
from controlplane.console.visit import Visit
from controlplane.console.wording import (
    STATES,
    instant,
    main_delay,
    of_workflow,
    parse,
    schedule,
    target_label,
)

PAGE = 50
#: The longest page a cell gives.
LONGEST = 200


def asked(visit: Visit, *names: str) -> dict[str, str]:
    """The filters of the URL that are set; they are passed on to the cell as they are."""
    return {name: value for name in names if (value := visit.request.GET.get(name, "").strip()[:200])}


def settled(visit: Visit, *names: str) -> str | None:
    """The same address with local times of a form made instants, so that it means the same to everybody
    who opens it; None if there are none."""
    given = visit.request.GET.copy()
    changed = False
    for name in names:
        if LOCAL_TIME.fullmatch(text := given.get(name, "").strip()):
            try:
                given[name] = instant(datetime.fromisoformat(text).replace(tzinfo=visit.zone))
            except (ValueError, OverflowError):
                continue  # the cell says what is wrong with it
            changed = True
    if not changed:
        return None
    return f"{visit.request.path}?{urlencode([(k, v) for k, v in given.items() if v])}"


def next_page(visit: Visit, filters: Mapping[str, str], cursor: str | None) -> str | None:
    """The URL of the next page."""
    if not cursor:
        return None
    return f"{visit.request.path}?{urlencode({**filters, 'cursor': cursor})}"


def run_bars(
    visit: Visit, runs: Iterable[Mapping[str, Any]], *, names: Mapping[str, str] | None = None
) -> list[Bar]:
    """Runs as bars of a time axis."""
    bars = []
    for run in runs:
        scheduled = parse(run["scheduled_for"])
        if scheduled is None:
            continue
        name = (names or {}).get(run["job_id"], "")
        word = STATES.get(run["state"], (run["state"], "", ""))[0]
        bars.append(
            Bar(
                scheduled=scheduled,
                started=parse(run["started_at"]),
                ended=parse(run["finished_at"]),
                state=run["state"],
                title=" · ".join(filter(None, (name, run["scheduled_for"], word))),
                href=visit.url("run", run["run_id"]),
                delay=main_delay(run["where_the_time_went"]),
            )
        )
    return bars


def due_of_jobs(visit: Visit, jobs: Iterable[Mapping[str, Any]]) -> list[Due]:
    """The next start of each job: its occurrence and its place in the dispatch window."""
    found = []
    for job in jobs:
        at = parse(job["due_at"])
        if at is not None:
            found.append(
                Due(at=at, title=f"{label(job)} · {job['next_run_at']}", href=visit.url("job", job["job_id"]))
            )
    return found


def label(job: Mapping[str, Any]) -> str:
    """What a job is called: its name, its key, or what it does."""
    return str(
        job.get("name") or job.get("key") or f"{schedule(job['schedule'])[0]} → {target_label(job['target'])}"
    )


def by_time(jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Jobs by their next start, the nearest first."""

    timed = [(parse(job["due_at"]), job) for job in jobs]
    return [
        job for _, job in sorted(((at, job) for at, job in timed if at is not None), key=lambda each: each[0])
    ]


def labels_of(visit: Visit, job_ids: Iterable[str]) -> dict[str, str]:
    """What jobs are called, by id. Runs of workflow steps name an execution in the place of a job."""
    wanted = {path("jobs", job_id): job_id for job_id in job_ids if not of_workflow(job_id)}
    return {wanted[target]: label(job) for target, job in visit.cell.get_many(wanted).items()}


def targets_of(visit: Visit, target_ids: Iterable[str | None]) -> dict[str, str]:
    """What targets are, in words: their description, or else their address. Task queues and workflows, which
    lists name in their place, are none."""
    wanted = {
        path("targets", target_id): target_id
        for target_id in target_ids
        if target_id and not target_id.startswith((QUEUE_LABEL, WORKFLOW_LABEL))
    }
    return {
        wanted[target]: str(found.get("description") or found["base_url"])
        for target, found in visit.cell.get_many(wanted).items()
    }


def at_most_shown(found: Mapping[str, Any]) -> str:
    """How many a page holds; `200+` where there are more than it could."""
    return f"{len(found['items'])}{'+' if found['next_cursor'] else ''}"


def sentences(faults: Iterable[Any], otherwise: str) -> list[str]:
    """Faults of a list's filters, in words."""
    return [f"{fault.place} {fault.detail}".strip() for fault in faults] or [otherwise]
