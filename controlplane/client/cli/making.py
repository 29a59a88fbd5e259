"""`clockhouse jobs create` and `edit`: from options and files to a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controlplane.client.cli.job_options import (
    Attempts,
    Calendar,
    ConcurrencyKey,
    Cron,
    Delivery,
    Dialect,
    End,
    Every,
    Flow,
    Headers,
    JobId,
    Lease,
    MaxConcurrent,
    Method,
    Misfire,
    Name,
    Now,
    Once,
    OnFailure,
    OnSuccess,
    Overlap,
    Path_,
    Payload,
    PriorityOption,
    Queue,
    Region,
    Roll,
    Start,
    Tags,
    TargetOption,
    Timeout,
    Url,
    Version,
    Window,
    Zone,
    job_fields,
)
from controlplane.client.cli.jobs import app as app
from controlplane.client.cli.jobs import id_of, show
from controlplane.client.cli.reading import read_document, schedule_of
from controlplane.client.cli.session import Session, Wrong, command
from controlplane.client.wire import without_none


@command(app, "create")
def create(
    session: Session,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="The job as JSON or TOML; - for stdin.")
    ] = None,
    cron: Cron = None,
    once: Once = None,
    every: Every = None,
    now: Now = False,
    time_zone: Zone = None,
    start: Start = None,
    end: End = None,
    dialect: Dialect = None,
    calendar: Calendar = None,
    roll: Roll = None,
    target: TargetOption = None,
    queue: Queue = None,
    lease: Lease = None,
    workflow: Flow = None,
    path: Path_ = None,
    url: Url = None,
    method: Method = None,
    timeout: Timeout = None,
    payload: Payload = None,
    header: Headers = None,
    name: Name = None,
    key: Annotated[str | None, typer.Option(help="Your own name for it; unique.")] = None,
    tag: Tags = None,
    priority: PriorityOption = None,
    window: Window = None,
    max_attempts: Attempts = None,
    misfire: Misfire = None,
    overlap: Overlap = None,
    delivery: Delivery = None,
    concurrency_key: ConcurrencyKey = None,
    max_concurrent: MaxConcurrent = None,
    on_success: OnSuccess = None,
    on_failure: OnFailure = None,
    region: Region = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Makes repeating this command safe.")] = None,
) -> None:
    """Create a job from options, from a file, or from a file with some options instead."""
    schedule = schedule_of(
        cron=cron, once=once, every=every, now=now, time_zone=time_zone, start=start, end=end,
        dialect=dialect, calendar=calendar, roll=roll,
    )  # fmt: skip
    body = read_document(file) if file else {}
    if not isinstance(body, dict):
        raise Wrong(f"{file}: one job is expected; `jobs apply -f` takes several")
    given = job_fields(
        schedule=schedule, target=target, path=path, url=url, method=method, timeout=timeout, payload=payload,
        header=header, name=name, tag=tag, priority=priority, window=window, max_attempts=max_attempts,
        misfire=misfire, overlap=overlap, delivery=delivery, concurrency_key=concurrency_key,
        max_concurrent=max_concurrent, on_success=on_success, on_failure=on_failure,
    )  # fmt: skip
    if queue is not None or lease is not None:
        if target is not None or url is not None:
            raise Wrong("either --queue, or --target or --url: workers fetch it, or a target is called")
        calls = {"--path": path, "--method": method, "--timeout": timeout, "--header": header or None}
        if of_a_call := [option for option, value in calls.items() if value is not None]:
            verb = "goes" if len(of_a_call) == 1 else "go"
            raise Wrong(f"{', '.join(of_a_call)} {verb} with --target or --url: workers fetch what is queued")
        body["target"] = _queued(body, queue, lease)
    elif "target" in given:
        given["target"] = _called(body, given["target"])
    if workflow is not None:
        if "target" in body or "target" in given:
            raise Wrong("either --workflow, or another target: each run starts a workflow")
        body["target"] = {"type": "WORKFLOW", "definition": workflow}
    if isinstance(body.get("retry_policy"), dict) and "retry_policy" in given:
        given["retry_policy"] = {**body["retry_policy"], **given["retry_policy"]}
    body |= given
    body |= without_none(key=key, region_policy=region.upper() if region else None)
    missing = [
        what for what, there in (("schedule", "schedule" in body), ("target", "target" in body)) if not there
    ]
    if missing:
        options = {
            "schedule": "--cron, --once, --every or --now",
            "target": "--target, --url, --queue or --workflow",
        }
        raise Wrong("; ".join(f"no {what}: {options[what]}" for what in missing))
    job = session.client.jobs.create(body, idempotency_key=idempotency_key)
    show(session, job)


@command(app, "edit")
def edit(
    session: Session,
    job: JobId,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A merge patch as JSON or TOML.")] = None,
    cron: Cron = None,
    once: Once = None,
    every: Every = None,
    time_zone: Zone = None,
    start: Start = None,
    end: End = None,
    dialect: Dialect = None,
    calendar: Calendar = None,
    roll: Roll = None,
    target: TargetOption = None,
    path: Path_ = None,
    url: Url = None,
    method: Method = None,
    timeout: Timeout = None,
    payload: Payload = None,
    header: Headers = None,
    name: Name = None,
    tag: Tags = None,
    priority: PriorityOption = None,
    window: Window = None,
    max_attempts: Attempts = None,
    misfire: Misfire = None,
    overlap: Overlap = None,
    delivery: Delivery = None,
    concurrency_key: ConcurrencyKey = None,
    max_concurrent: MaxConcurrent = None,
    on_success: OnSuccess = None,
    on_failure: OnFailure = None,
    version: Version = None,
) -> None:
    """Change what is given; the rest stays. Runs under way keep their version."""
    job_id = id_of(session, job)
    changes = read_document(file) if file else {}
    if not isinstance(changes, dict):
        raise Wrong(f"{file}: an object is expected")
    of_it = without_none(
        time_zone=time_zone,
        dialect=dialect and dialect.upper(),
        calendar=calendar,
        roll=roll and roll.upper(),
    )
    if of_it and not (cron or once or every or start or end):
        # Members of the schedule that is there.
        schedule: dict[str, Any] | None = {n: None if v == "none" else v for n, v in of_it.items()}
    else:
        schedule = schedule_of(
            cron=cron, once=once, every=every, now=False, time_zone=time_zone, start=start, end=end,
            dialect=dialect, calendar=calendar, roll=roll,
        )  # fmt: skip
        if schedule is not None and time_zone is None:
            schedule.pop("time_zone", None)
            schedule |= _zone_if_needed(session, job_id, schedule)
    given = job_fields(
        schedule=schedule, target=target, path=path, url=url, method=method, timeout=timeout, payload=payload,
        header=header, name=name, tag=tag, priority=priority, window=window, max_attempts=max_attempts,
        misfire=misfire, overlap=overlap, delivery=delivery, concurrency_key=concurrency_key,
        max_concurrent=max_concurrent, on_success=on_success, on_failure=on_failure,
    )  # fmt: skip
    for member, value in given.items():
        there = changes.get(member)
        if isinstance(there, dict) and isinstance(value, dict):
            value = {**there, **value}
        changes[member] = value
    if not changes:
        raise Wrong("nothing to change was given")
    show(session, session.client.jobs.edit(job_id, changes, version=version))


def _zone_if_needed(session: Session, job: str, schedule: dict[str, Any]) -> dict[str, Any]:
    """UTC for a job that becomes a CRON; one that is a CRON keeps its zone."""
    if schedule["type"] != "CRON" or session.client.jobs.get(job).schedule.get("type") == "CRON":
        return {}
    return {"time_zone": "UTC"}


def _queued(body: dict[str, Any], queue: str | None, lease: int | None) -> dict[str, Any]:
    """The task queue that options name, over what a file says of one. A target that the file calls is
    not silently dropped for it."""
    filed = body.get("target")
    if isinstance(filed, dict) and "task_queue" not in filed:
        raise Wrong("the file's job calls a target; take its `target` out of it, to queue it for workers")
    if isinstance(filed, dict):
        return {**filed, **without_none(task_queue=queue, lease_seconds=lease)}
    if queue is None:
        raise Wrong("--lease goes with --queue")
    return without_none(type="TASK_QUEUE", task_queue=queue, lease_seconds=lease)


def _called(body: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The target that options name, over what a file says of one."""
    filed = body.get("target")
    if not isinstance(filed, dict):
        return given
    if "task_queue" in filed:
        raise Wrong("the file's job is for workers of a queue; take its `target` out of it, to call one")
    # An address names a target and a path.
    gone = ("target_id", "path") if "url" in given else ("url",) if "target_id" in given else ()
    return {name: value for name, value in filed.items() if name not in gone} | given
