"""`clockhouse jobs`"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import (
    Calendar,
    Cron,
    Dialect,
    End,
    Every,
    JobId,
    JobIds,
    Limit,
    Once,
    Payload,
    Roll,
    Start,
    TargetOption,
    Yes,
    Zone,
)
from controlplane.client.cli.reading import payload_of, read_jobs, schedule_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents, first_line
from controlplane.client.cli.wording import counted, moment
from controlplane.client.documents import Job
from controlplane.client.errors import ApiError

app = typer.Typer(no_args_is_help=True, help="Jobs: what to call, and when.")


@command(app, "list")
def list_(
    session: Session,
    state: Annotated[str | None, typer.Option(help="SCHEDULED, PAUSED, CANCELLED or COMPLETED.")] = None,
    target: TargetOption = None,
    tag: Annotated[str | None, typer.Option(help="With this tag.")] = None,
    name_prefix: Annotated[str | None, typer.Option(help="Whose name begins so.")] = None,
    due_from: Annotated[str | None, typer.Option(help="Due at or after this instant.")] = None,
    due_until: Annotated[str | None, typer.Option(help="Due before this instant.")] = None,
    limit: Limit = 50,
) -> None:
    """List jobs, the newest first, with how their last runs ended. COMPLETED says that no further run is due:
    it says nothing of how the last one went."""
    walk = session.client.jobs.list(
        state=state.upper() if state else None,
        target=target,
        tag=tag,
        name_prefix=name_prefix,
        due_from=due_from,
        due_until=due_until,
        include="last_run",
        limit=min(limit, 200) if limit > 0 else 200,
    )
    jobs = session.take(walk, limit)
    session.answer(documents(jobs), lambda: tables.jobs_table(jobs, session.now))


@command(app, "get")
def get(session: Session, job: JobId) -> None:
    """Show a job with its latest runs."""
    show(session, session.client.jobs.get(id_of(session, job)))


@command(app, "pause")
def pause(
    session: Session,
    jobs: JobIds,
) -> None:
    """Stop the timers of jobs. Runs under way go on."""
    _each(session, jobs, session.client.jobs.pause, "paused")


@command(app, "resume")
def resume(
    session: Session,
    jobs: JobIds,
) -> None:
    """Let paused jobs go on at their first occurrence after now; one-offs whose time went by start now."""
    _each(session, jobs, session.client.jobs.resume, "resumed")


@command(app, "cancel")
def cancel(
    session: Session,
    jobs: JobIds,
    yes: Yes = False,
) -> None:
    """Cancel jobs and their waiting runs, for good."""
    session.confirm(f"Cancel {counted(len(jobs), 'job')} and the runs that wait?",
                    yes=yes)  # fmt: skip
    _each(session, jobs, session.client.jobs.cancel, "cancelled")


def _each(session: Session, jobs: list[str], act: Any, done: str) -> None:
    results, failed = [], False
    with session.progress(f"{counted(len(jobs), 'job')} …", len(jobs)) as advance:
        for job in jobs:
            try:
                results.append(act(id_of(session, job)).raw)
            except ApiError as error:
                if len(jobs) == 1:
                    raise
                failed = True
                results.append({"job_id": job, "error": {"code": error.code, "detail": error.detail}})
                session.say(f"[red]{escape(job)}[/red]: {escape(first_line(error))}")
            advance(1)
    count = sum("error" not in result for result in results)
    session.answer(results, lambda: f"{counted(count, 'job')} {done}.")
    if failed:
        raise typer.Exit(BAD_OUTCOME)


@command(app, "trigger")
def trigger(
    session: Session,
    job: JobId,
    payload: Payload = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until the run is finished.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 300.0,
) -> None:
    """Start a run by hand, now. With --wait, exit status 1 unless it succeeded."""
    run = session.client.jobs.trigger(id_of(session, job), **payload_of(payload))
    if wait:
        with session.progress(f"Waiting for {run.run_id} …"):
            run = session.client.runs.wait(run.run_id, timeout=timeout)
    session.answer(run.raw, lambda: tables.run_card(run, session.now))
    if wait and not run.succeeded:
        raise typer.Exit(BAD_OUTCOME)


@command(app, "preview")
def preview(
    session: Session,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="A job whose schedule to show.")] = None,
    cron: Cron = None,
    once: Once = None,
    every: Every = None,
    time_zone: Zone = None,
    start: Start = None,
    end: End = None,
    dialect: Dialect = None,
    calendar: Calendar = None,
    roll: Roll = None,
    after: Annotated[str | None, typer.Option(help="Occurrences after this instant (now).")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many, 100 at most.")] = 10,
) -> None:
    """Show when a schedule, or a job, would run, clock changes included."""
    schedule = schedule_of(
        cron=cron, once=once, every=every, now=False, time_zone=time_zone, start=start, end=end,
        dialect=dialect, calendar=calendar, roll=roll,
    )  # fmt: skip
    if (schedule is None) == (job is None):
        raise Wrong("either a job, or a schedule: --cron, --once or --every")
    shown = schedule if job is None else session.client.jobs.get(id_of(session, job)).schedule
    found = session.client.schedules.preview(shown or {}, after=after, count=count)
    session.answer(found.raw, lambda: tables.preview_table(found, session.now))


@command(app, "occurrences")
def occurrences(
    session: Session,
    job: JobId,
    since: Annotated[str | None, typer.Option(help="Past ones at or after this instant.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this instant.")] = None,
    count: Annotated[int, typer.Option("--next", help="How many coming ones.")] = 5,
    limit: Limit = 20,
) -> None:
    """Tell what became of each occurrence, why one did not run, and when the next ones are."""
    found = session.client.jobs.occurrences(
        id_of(session, job),
        since=since,
        until=until,
        count=count,
        limit=min(limit, 200) if limit > 0 else 200,
    )
    if found.next_cursor is not None:
        session.say(f"[dim]The latest {len(found.past)} are shown; --until looks further back.[/dim]")
    session.answer(found.document, lambda: tables.ledger_table(found, session.now))


@command(app, "apply")
def apply(
    session: Session,
    file: Annotated[str, typer.Option("--file", "-f", help="Jobs with keys, as JSON or TOML; - for stdin.")],
) -> None:
    """Make the jobs of a file what it says: each is found by its key, or created. Jobs that are not in
    the file stay as they are. Exit status 1 if one was refused; the others are done."""
    jobs = read_jobs(file)
    failed = 0
    results: list[dict[str, Any]] = []
    with session.progress("Applying …", len(jobs)) as advance:
        for job in jobs:
            key = str(job["key"])
            try:
                done = session.client.jobs.put_by_key(key, job)
            except ApiError as error:
                if error.status in (401, 403):
                    raise
                failed += 1
                results.append({"key": key, "outcome": "refused", "code": error.code, "detail": error.detail})
                session.say(f"[red]{escape(key)}[/red]: {escape(first_line(error))}")
                for fault in error.faults:
                    session.say(f"  {escape(str(fault))}")
            else:
                results.append({"key": key, "outcome": done.outcome, "job": dict(done.job.raw)})
            advance(1)
    session.answer(results, lambda: _applied(session, results))
    if failed:
        raise typer.Exit(BAD_OUTCOME)


def _applied(session: Session, results: list[dict[str, Any]]) -> Any:
    made = tables.table("key", "outcome", "job", "next run")
    for result in results:
        job = result.get("job", {})
        at = job.get("next_run_at")
        made.add_row(
            escape(result["key"]),
            result["outcome"],
            job.get("job_id", "–"),
            moment(datetime.fromisoformat(at) if at else None, session.now),
        )
    return made


def id_of(session: Session, named: str) -> str:
    """The id of a job that was named by its id or by its key."""
    return named if named.startswith("job_") else session.client.jobs.get_by_key(named).job_id


def show(session: Session, job: Job) -> None:
    session.answer(job.raw, lambda: tables.job_card(job, session.now))
