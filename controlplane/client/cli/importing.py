"""`clockhouse import`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.reading import read_text, seconds_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, command, first_line
from controlplane.client.cli.wording import counted, moment, schedule_text
from controlplane.client.documents import Job
from controlplane.client.importers.applying import Applied, apply, left_behind
from controlplane.client.importers.crontab import key_prefix, read_crontab
from controlplane.client.importers.eventbridge import read_eventbridge
from controlplane.client.importers.plan import Destination, Difference, Plan

app = typer.Typer(
    no_args_is_help=True, help="Move in from another scheduler. Shows a plan; --apply makes it true."
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
    typer.Option("--prune", help="Cancel jobs of an earlier import that are not in the source any more."),
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
    apply_: Apply = False,
) -> None:
    """Import a crontab: each line becomes a job that sends its command to the target."""
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
    _finish(session, plan, apply_, paused, prune=prune, tag=tag_of_all, prefix=key_prefix(called))


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
    apply_: Apply = False,
) -> None:
    """Import EventBridge Scheduler schedules from what `aws scheduler get-schedule` printed."""
    destination = _destination(target, path, ["eventbridge", *(tag or [])], max_attempts, window, misfire)
    plan = read_eventbridge(read_text(file), destination=destination, now=datetime.now(UTC))
    _finish(session, plan, apply_, paused, prune=prune, tag="eventbridge", prefix="eventbridge:")


def _finish(
    session: Session, plan: Plan, apply_: bool, paused: bool, *, prune: bool, tag: str, prefix: str
) -> None:
    """Show the plan, or make it true. Jobs of an earlier import that it does not hold are told either
    way; `prune` cancels them, unless an entry was refused: it may be the one whose job seems lost."""
    prune = prune and not plan.refused
    if paused:
        plan = replace(plan, jobs=[replace(job, paused=True) for job in plan.jobs])
    document = {**plan.document(), "applied": None, "left_behind": None}
    if not apply_:
        session.answer(document, lambda: _report(plan, session.now))
        if plan.jobs:
            session.say("[dim]Nothing was created. --apply creates and updates these jobs.[/dim]")
        if plan.refused:
            raise typer.Exit(BAD_OUTCOME)
        return
    results: list[Applied] = []
    with session.progress("Importing …", len(plan.jobs)) as advance:
        for result in apply(session.client, plan):
            results.append(result)
            advance(1)
    document["applied"] = [_applied_document(result) for result in results]
    left = left_behind(session.client, plan, tag=tag, prefix=prefix)
    if prune:
        for job in left:
            session.client.jobs.cancel(job.job_id)
    document["left_behind"] = [
        {"key": job.key, "job_id": job.job_id, "outcome": "cancelled" if prune else job.status.lower()}
        for job in left
    ]
    session.answer(
        document,
        lambda: Group(
            _report(plan, session.now),
            "",
            _applied_table(results, session.now),
            *_left_behind(left, prune, bool(plan.refused)),
        ),
    )
    if plan.refused or any(result.error for result in results):
        raise typer.Exit(BAD_OUTCOME)


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


def _left_behind(left: Sequence[Job], prune: bool, refused: bool) -> list[RenderableType]:
    """Jobs of an earlier import that the source does not hold any more."""
    if not left:
        return []
    said = "cancelled" if prune else "still here; --prune cancels them"
    if refused:
        said = "still here; --prune cancels them once no entry is refused"
    title = f"[bold]Not in the source any more: {counted(len(left), 'job')} ({said})[/bold]"
    return ["", title, *(f"  {escape(str(job.key))} [dim]{job.job_id}[/dim]" for job in left)]


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
