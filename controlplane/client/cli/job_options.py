"""The options that describe a job, and the body they make."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controlplane.client.cli.reading import pairs_of, payload_of
from controlplane.client.wire import without_none

JobIds = Annotated[list[str], typer.Argument(metavar="JOB...", help="Their ids (job_…) or keys.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Its id (job_…) or its key.")]
Limit = Annotated[int, typer.Option("--limit", "-n", help="At most this many; 0 for all.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Version = Annotated[int | None, typer.Option(help="Only if it still has this version.")]
Cron = Annotated[str | None, typer.Option(help="Five Unix fields, or @daily and the like.")]
Once = Annotated[
    str | None, typer.Option(help="A time: 2026-09-28T09:00:00 with --time-zone, or with an offset.")
]
Every = Annotated[str | None, typer.Option(help="A period: 90s, 15m, 2h, 1d.")]
Now = Annotated[bool, typer.Option("--now", help="At once, one time.")]
Zone = Annotated[str | None, typer.Option("--time-zone", "-z", help="IANA name, such as Europe/Berlin.")]
Start = Annotated[str | None, typer.Option(help="No occurrence before this instant.")]
End = Annotated[str | None, typer.Option(help="No occurrence at or after this instant.")]
TargetOption = Annotated[str | None, typer.Option("--target", "-t", help="A registered target's id.")]
Queue = Annotated[
    str | None, typer.Option("--queue", "-q", help="Instead of a target: a task queue that workers poll.")
]
Lease = Annotated[
    int | None, typer.Option("--lease", help="With --queue: seconds without a heartbeat that lose a task.")
]
Flow = Annotated[
    str | None,
    typer.Option("--workflow", help="Instead of a target: what each run starts."),
]
Path_ = Annotated[str | None, typer.Option("--path", help="Below the target's base URL.")]
Url = Annotated[str | None, typer.Option(help="Instead of a target: an address below a registered one.")]
Method = Annotated[str | None, typer.Option(help="POST, if absent.")]
Timeout = Annotated[int | None, typer.Option(help="Seconds a call may take.")]
Payload = Annotated[str | None, typer.Option("--payload", "-p", help="JSON, or @file, or @- for stdin.")]
Headers = Annotated[list[str] | None, typer.Option("--header", "-H", help="Name: value. May be repeated.")]
Name = Annotated[str | None, typer.Option(help="For people.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="May be repeated.")]
PriorityOption = Annotated[str | None, typer.Option(help="CRITICAL, HIGH, DEFAULT or LOW.")]
Window = Annotated[int | None, typer.Option(help="Seconds over which starts are spread.")]
Attempts = Annotated[int | None, typer.Option("--max-attempts", help="Of each run.")]
Misfire = Annotated[str | None, typer.Option(help="RUN_ONCE, RUN_ALL or SKIP.")]

Dialect = Annotated[str | None, typer.Option(help="How --cron is read: UNIX, QUARTZ or EVENTBRIDGE.")]
Calendar = Annotated[str | None, typer.Option(help="Days on which --cron does not run: cal_….")]
Roll = Annotated[
    str | None, typer.Option(help="A run on such a day: SKIP, or it moves to the NEXT or PREVIOUS open day.")
]
Overlap = Annotated[
    str | None,
    typer.Option(help="While the one before runs: ALLOW, SKIP, BUFFER_ONE or CANCEL_PREVIOUS."),
]
Delivery = Annotated[
    str | None, typer.Option(help="AT_LEAST_ONCE, or AT_MOST_ONCE (of jobs of a single region).")
]
Region = Annotated[
    str | None,
    typer.Option(
        "--region-policy",
        help="HOME_ASYNC, STRICT (another region confirms) or SINGLE_REGION (the home region alone has it).",
    ),
]
ConcurrencyKey = Annotated[
    str | None, typer.Option("--concurrency-key", help="Jobs with the same key share --max-concurrent.")
]
MaxConcurrent = Annotated[
    int | None, typer.Option("--max-concurrent", help="Runs under way with that key, at most; 1 if absent.")
]
_TOLD = "who is told: TARGET, TARGET/path, an address below a target, or `none`."
OnSuccess = Annotated[str | None, typer.Option("--on-success", help=f"When a run succeeds, {_TOLD}")]
OnFailure = Annotated[str | None, typer.Option("--on-failure", help=f"When a run fails for good, {_TOLD}")]


def callback_of(text: str) -> dict[str, Any] | None:
    """Who is told of a run's end: `tgt_pager`, `tgt_pager/ended`, an address; None for `none`."""
    if text == "none":
        return None
    if "://" in text:
        return {"url": text}
    target_id, slash, below = text.partition("/")
    return without_none(target_id=target_id, path=f"/{below}" if slash else None)


def job_fields(
    *,
    schedule: dict[str, Any] | None,
    target: str | None,
    path: str | None,
    url: str | None,
    method: str | None,
    timeout: int | None,
    payload: str | None,
    header: list[str] | None,
    name: str | None,
    tag: list[str] | None,
    priority: str | None,
    window: int | None,
    max_attempts: int | None,
    misfire: str | None,
    overlap: str | None,
    delivery: str | None,
    concurrency_key: str | None,
    max_concurrent: int | None,
    on_success: str | None,
    on_failure: str | None,
) -> dict[str, Any]:
    """The members of a job, or of a merge patch, that options give."""
    to = without_none(target_id=target, path=path, url=url, method=method, timeout_seconds=timeout)
    told = {"on_success": on_success, "on_failure": on_failure}
    made = without_none(
        schedule=schedule,
        target=to or None,
        headers=pairs_of(header, ":", "a header") if header else None,
        name=name,
        tags=tag or None,
        priority=priority.upper() if priority else None,
        dispatch_window_seconds=window,
        retry_policy={"max_attempts": max_attempts} if max_attempts is not None else None,
        misfire_policy=misfire.upper() if misfire else None,
        overlap_policy=overlap.upper() if overlap else None,
        delivery=delivery.upper() if delivery else None,
        concurrency_key=concurrency_key,
        max_concurrent=max_concurrent,
    )
    # Null says something in both: a payload of null, and nobody to be told.
    return made | payload_of(payload) | {n: callback_of(text) for n, text in told.items() if text is not None}
