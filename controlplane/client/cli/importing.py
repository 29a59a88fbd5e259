"""`clockhouse import`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Yes
from controlplane.client.cli.reading import read_text, seconds_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, first_line
from controlplane.client.cli.wording import counted, moment, schedule_text
from controlplane.client.documents import Job
from controlplane.client.errors import ApiError, ConfigurationError, TransportError
from controlplane.client.importers.applying import Applied, apply, left_behind
from controlplane.client.importers.crontab import read_crontab
from controlplane.client.importers.eventbridge import read_eventbridge
from controlplane.client.importers.plan import Destination, Difference, Plan

app = typer.Typer(
    no_args_is_help=True,
    help="Move in from another scheduler. Shows a plan; --apply makes it true.",
)

Source = Annotated[str, typer.Argument(metavar="FILE", help="- for stdin.")]
TargetOption = Annotated[str, typer.Option("--target", "-t", help="The registered target that jobs call.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="For each job. May be repeated.")]
Attempts = Annotated[int | None, typer.Option("--max-attempts", help="Of each run; 1 never repeats a call.")]
Window = Annotated[
    str | None, typer.Option(help="Spread starts over 30s, 5m, … instead of what the source says.")
]
Misfire = Annotated[str | None, typer.Option(help="RUN_ONCE, RUN_ALL or SKIP.")]
Paused = Annotated[bool, typer.Option("--paused", help="Create jobs paused, for a cut-over by hand.")]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Cancel jobs of an earlier import (of this --name, or of the groups in the file) that are"
        " not in the source any more. Asks first.",
    ),
]
Apply = Annotated[bool, typer.Option("--apply/--dry-run", help="Create and update the jobs.")]


def _destination(
    target: str, path: str, tag: list[str], max_attempts: int | None, window: str | None, misfire: str | None
) -> Destination:
    return Destination(
        target_id=target,
        path=path,
        tags=tag,
        max_attempts=max_attempts,
        window_seconds=seconds_of(window) if window else None,
        misfire_policy=misfire.upper() if misfire else None,
    )


@command(app, "crontab")
def crontab(
    session: Session,
    file: Source,
    target: TargetOption,
    path: Annotated[
        str, typer.Option("--path", help="May hold {slug} (of the program), {user}, {name}.")
    ] = "/cron/{slug}",
    name: Annotated[str | None, typer.Option(help="Tells crontabs apart; the file's name if absent.")] = None,
    time_zone: Annotated[
        str | None, typer.Option("--time-zone", "-z", help="The host's, for lines without a CRON_TZ above.")
    ] = None,
    system: Annotated[
        bool | None,
        typer.Option(
            "--system/--user", help="Whether lines name a user. Known of /etc/crontab and /etc/cron.d."
        ),
    ] = None,
    tag: Tags = None,
    max_attempts: Attempts = None,
    window: Window = None,
    misfire: Misfire = None,
    paused: Paused = False,
    prune: Prune = False,
    yes: Yes = False,
    apply_: Apply = False,
) -> None:
    """Import a crontab: each line becomes a job that sends its command to the target. Exit status 1 if a line
    or a job was refused, or --prune could not cancel; the others are imported all the same."""
    if prune and name is None:
        raise Wrong("--prune goes with --name: two machines' crontabs may have files of one name")
    called = name or (Path(file).name if file != "-" else "stdin")
    tag_of_all = f"crontab:{called}"[:64]
    destination = _destination(target, path, [tag_of_all, *(tag or [])], max_attempts, window, misfire)
    if system is None:
        system = Path(file).name == "crontab" or Path(file).parent.name == "cron.d"
        session.say(
            f"[dim]Read as a {'system' if system else 'user'} crontab; --system and --user decide.[/dim]"
        )
    plan = read_crontab(
        read_text(file), name=called, destination=destination, time_zone=time_zone, system=system
    )
    _finish(session, plan, apply_, paused, prune=prune, yes=yes, tag=tag_of_all)


@command(app, "eventbridge")
def eventbridge(
    session: Session,
    file: Source,
    target: TargetOption,
    path: Annotated[str, typer.Option("--path", help="May hold {name} and {group}.")] = "/{group}/{name}",
    tag: Tags = None,
    max_attempts: Attempts = None,
    window: Window = None,
    misfire: Misfire = None,
    paused: Paused = False,
    prune: Prune = False,
    yes: Yes = False,
    apply_: Apply = False,
) -> None:
    """Import EventBridge Scheduler schedules from what `aws scheduler get-schedule` printed. Exit status 1 if
    one was refused, or --prune could not cancel; the others are imported all the same."""
    destination = _destination(target, path, ["eventbridge", *(tag or [])], max_attempts, window, misfire)
    plan = read_eventbridge(read_text(file), destination=destination, now=datetime.now(UTC))
    _finish(session, plan, apply_, paused, prune=prune, yes=yes, tag="eventbridge")


def _finish(
    session: Session, plan: Plan, apply_: bool, paused: bool, *, prune: bool, yes: bool, tag: str
) -> None:
    """Show the plan, or make it true. Jobs of an earlier import that it does not hold are told either
    way. `prune` cancels exactly those that were shown, after a question, unless something stands against
    it: an entry that was refused may be the one whose job seems lost."""
    if paused:
        plan = replace(plan, jobs=[replace(job, paused=True) for job in plan.jobs])
    left = _find_left(session, plan, tag, needed=apply_ or prune)
    against = _against_pruning(plan, [])
    results: list[Applied] | None = None
    gone: dict[str, ApiError | None] = {}
    if apply_:
        if prune and left and against is None:
            if not session.as_json:
                session.err.print(Group(*_left_behind(left, "--prune cancels them", {})[1:]))
            session.confirm(f"Cancel {counted(len(left), 'job')} and the runs that wait?", yes=yes)
        results = []
        with session.progress("Importing …", len(plan.jobs)) as advance:
            for result in apply(session.client, plan):
                results.append(result)
                advance(1)
        against = _against_pruning(plan, results)
        if prune and against is None:
            gone = {job.job_id: _cancel(session, job) for job in left or ()}
    said = "still here; --prune cancels them"
    if against is not None:
        said = f"still here; --prune cancels them {against}"
    elif prune and not apply_:
        said = "--apply cancels them"
    document = {
        **plan.document(),
        "applied": None if results is None else [_applied_document(result) for result in results],
        "left_behind": None if left is None else [_left_document(job, gone) for job in left],
    }
    parts: list[RenderableType] = [_report(plan, session.now)]
    if results:
        parts += ["", _applied_table(results, session.now)]
    session.answer(document, lambda: Group(*parts, *_left_behind(left or (), said, gone)))
    if plan.jobs and not apply_:
        session.say("[dim]Nothing was created. --apply creates and updates these jobs.[/dim]")
    unpruned = bool(prune and apply_ and left) and (against is not None or any(gone.values()))
    if plan.refused or unpruned or any(result.error for result in results or ()):
        raise typer.Exit(BAD_OUTCOME)


def _find_left(session: Session, plan: Plan, tag: str, *, needed: bool) -> Sequence[Job] | None:
    """None where a plan is only looked at, and there is no API to ask (yet)."""
    try:
        return left_behind(session.client, plan, tag=tag)
    except (ConfigurationError, TransportError) as error:
        if needed:
            raise
        session.say(f"[dim]What an earlier import left behind is not known: {escape(str(error))}[/dim]")
        return None


def _against_pruning(plan: Plan, results: Sequence[Applied]) -> str | None:
    """When jobs may be cancelled that may not be now."""
    if plan.refused:
        return "once no entry is refused"
    if any(result.error for result in results):
        return "once the server refuses no job"
    if not plan.jobs:
        return "once there is something to import"
    return None


def _cancel(session: Session, job: Job) -> ApiError | None:
    """Cancel a job; one that cannot be does not keep the others."""
    try:
        session.client.jobs.cancel(job.job_id)
    except ApiError as error:
        if error.status in (401, 403):
            raise
        return error
    return None


# --- the report --------------------------------------------------------------------------
def _report(plan: Plan, now: datetime) -> RenderableType:
    jobs = tables.table("from", "key", "schedule", "path", "differs in")
    for job in plan.jobs:
        topics = sorted({difference.about for difference in job.differences})
        schedule: Any = job.body["schedule"]
        jobs.add_row(
            escape(job.source),
            escape(job.key),
            escape(schedule_text(schedule)),
            escape(str(job.body["target"]["path"])),
            ", ".join(topics) + (" (paused)" if job.paused else ""),
        )
    parts: list[RenderableType] = [jobs] if plan.jobs else ["There is nothing to import."]
    if plan.jobs:
        parts += ["", "[bold]What will differ for all[/bold]", *(_difference(d) for d in plan.differences)]
        for (about, detail), sources in _grouped(plan).items():
            parts.append(f"  {about}: {escape(detail)} [dim]({escape(_some(sources))})[/dim]")
    if plan.refused:
        parts += ["", f"[bold red]Refused: {counted(len(plan.refused), 'entry', 'entries')}[/bold red]"]
        for refused in plan.refused:
            parts.append(f"  {escape(refused.source)}: {escape(refused.text)}")
            parts.append(f"    {escape(refused.reason)}")
    return Group(*parts)


def _difference(difference: Difference) -> str:
    return f"  {difference.about}: {escape(difference.detail)}"


def _grouped(plan: Plan) -> dict[tuple[str, str], list[str]]:
    """Differences that several jobs share are told once."""
    found: dict[tuple[str, str], list[str]] = {}
    for job in plan.jobs:
        for difference in job.differences:
            found.setdefault((difference.about, difference.detail), []).append(job.source)
    return found


def _some(sources: list[str], most: int = 5) -> str:
    more = f" and {len(sources) - most} more" if len(sources) > most else ""
    return ", ".join(sources[:most]) + more


def _left_behind(left: Sequence[Job], said: str, gone: Mapping[str, ApiError | None]) -> list[RenderableType]:
    """Jobs of an earlier import that the source does not hold any more, and what became of them."""
    if not left:
        return []
    if gone:
        failed = sum(error is not None for error in gone.values())
        said = f"cancelled, but {failed} could not be" if failed else "cancelled"
    title = f"[bold]Not in the source any more: {counted(len(left), 'job')} ({said})[/bold]"
    lines = []
    for job in left:
        error = gone.get(job.job_id)
        why = f" [red]{escape(first_line(error))}[/red]" if error else ""
        lines.append(f"  {escape(str(job.key))} [dim]{job.job_id}[/dim]{why}")
    return ["", title, *lines]


def _left_document(job: Job, gone: Mapping[str, ApiError | None]) -> dict[str, Any]:
    told: dict[str, Any] = {"key": job.key, "job_id": job.job_id, "outcome": job.status.lower()}
    if job.job_id not in gone:
        return told
    if (error := gone[job.job_id]) is None:
        return {**told, "outcome": "cancelled"}
    return {**told, "error": {"code": error.code, "detail": error.detail}}


def _applied_document(result: Applied) -> dict[str, Any]:
    if result.error is not None:
        error = result.error
        faults = [str(fault) for fault in error.faults]
        told: dict[str, Any] = {"code": error.code, "detail": error.detail, "faults": faults}
        return {"key": result.planned.key, "outcome": result.outcome, "error": told}
    return {
        "key": result.planned.key,
        "outcome": result.outcome,
        "job_id": result.done.job.job_id if result.done else None,
        "paused": result.paused,
    }


def _applied_table(results: list[Applied], now: datetime) -> RenderableType:
    made = tables.table("key", "outcome", "job", "next run")
    for result in results:
        if result.error is not None:
            told = "; ".join(str(fault) for fault in result.error.faults) or first_line(result.error)
            made.add_row(escape(result.planned.key), "[red]refused[/red]", "–", escape(told))
        elif result.done is not None:
            made.add_row(
                escape(result.planned.key),
                result.outcome,
                result.done.job.job_id,
                "paused" if result.paused else moment(result.done.job.next_run_at, now),
            )
    return made
