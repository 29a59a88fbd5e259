"""`clockhouse calendars list`, `get`, `put`, `delete`; `clockhouse jobs backfill`; `clockhouse backfills`"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.calendar_calls import Backfill, BackfillPlan, Calendar
from controlplane.client.cli import tables
from controlplane.client.cli.job_options import JobId, Limit, Version, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import counted, moment
from controlplane.client.waiting import pauses

app = typer.Typer(no_args_is_help=True, help="Calendars: days on which schedules do not run.")
backfills = typer.Typer(no_args_is_help=True, help="Backfills: how far they are.")

CalendarId = Annotated[str, typer.Argument(metavar="CALENDAR", help="Its id: cal_…")]
BackfillId = Annotated[str, typer.Argument(metavar="BACKFILL", help="Its id: bf_…")]


@command(app, "list")
def list_(session: Session, limit: Limit = 50) -> None:
    """List calendars by id."""
    found = session.take(session.client.calendars.list(limit=min(limit, 200) if limit > 0 else 200), limit)
    made = tables.table("calendar", "name", "dates", "first", "last", "every week", right=("dates",))
    for each in found:
        made.add_row(
            each.calendar_id, escape(each.name or "–"), str(each.count), str(each.first or "–"),
            str(each.last or "–"), " ".join(each.weekdays) or "–",
        )  # fmt: skip
    session.answer(documents(found), lambda: made if found else "There are no calendars yet.")


@command(app, "get")
def get(session: Session, calendar: CalendarId) -> None:
    """Show a calendar with its dates."""
    found = session.client.calendars.get(calendar)
    session.answer(found.raw, lambda: _shown(session, found))


@command(app, "put")
def put(
    session: Session,
    calendar: CalendarId,
    ics: Annotated[Path | None, typer.Option(help="An iCalendar file; its whole days count.")] = None,
    day: Annotated[
        list[str] | None,
        typer.Option("--date", help="2026-12-25, or '2026-12-25 Christmas'. May be repeated."),
    ] = None,
    weekday: Annotated[list[str] | None, typer.Option(help="SAT. May be repeated.")] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    version: Version = None,
) -> None:
    """Make a calendar exclude exactly what is given; jobs that refer to it follow within seconds."""
    text = None
    if ics is not None:
        try:
            text = ics.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as fault:
            raise Wrong(f"{ics} cannot be read: {fault}") from None
    days: list[dict[str, Any]] = []
    for given in day or ():
        at, _, what = given.strip().partition(" ")
        days.append({"date": at, "name": what.strip() or None})
    found = session.client.calendars.put(
        calendar, name=name, dates=days, ics=text, version=version,
        weekdays=[each.upper() for each in weekday or ()],  # type: ignore[misc]
    )  # fmt: skip
    session.answer(found.raw, lambda: _shown(session, found))


@command(app, "delete")
def delete(session: Session, calendar: CalendarId, yes: Yes = False) -> None:
    """Take a calendar away; refused while a scheduled or paused job refers to it."""
    session.confirm(f"Delete {calendar}?", yes=yes)
    session.client.calendars.delete(calendar)
    session.answer({"calendar_id": calendar, "deleted": True}, lambda: f"{calendar} is deleted.")


def _shown(session: Session, found: Calendar) -> RenderableType:
    card = tables.card(
        [
            ("calendar", found.calendar_id),
            ("name", escape(found.name) if found.name else None),
            ("version", found.version),
            ("dates", found.count),
            ("every week", " ".join(found.weekdays) or None),
            ("jobs", "are being brought to this version" if found.pending else None),
            ("moved", counted(found.moved, "job") if found.moved else None),
            ("changed", moment(found.updated_at, session.now) if found.updated_at else None),
        ]
    )
    made = tables.table("date", "name")
    for day in found.dates:
        made.add_row(str(day.date), escape(day.name or ""))
    return Group(card, made) if found.dates else card


# --- backfills ---------------------------------------------------------------------------
def backfill(
    session: Session,
    job: JobId,
    since: Annotated[str, typer.Option("--from", help="The first instant that counts.")],
    until: Annotated[str, typer.Option(help="No occurrence at or after it.")],
    max_per_second: Annotated[int, typer.Option(help="Started in a second, at most.")] = 10,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run.")] = False,
    yes: Yes = False,
) -> None:
    """Run the occurrences of a past stretch that did not run; shown in numbers first."""
    client = session.client
    job_id = job if job.startswith("job_") else client.jobs.get_by_key(job).job_id
    plan = client.backfills.plan(job_id, since=since, until=until, max_per_second=max_per_second)
    if dry_run or not plan.to_run:
        session.answer(plan.raw, lambda: _plan(plan))
        return
    if not session.as_json:
        session.out.print(_plan(plan))
    session.confirm(f"Run {counted(plan.to_run, 'occurrence')}?", yes=yes)
    begun = client.backfills.start(job_id, since=since, until=until, max_per_second=max_per_second)
    found = _follow(session, begun)
    session.answer(found.raw, lambda: _card(session, found))
    if found.state != "DONE":
        raise typer.Exit(BAD_OUTCOME)


def _plan(plan: BackfillPlan) -> RenderableType:
    return tables.card(
        [
            ("occurrences", plan.occurrences),
            ("to run", plan.to_run),
            ("left alone", plan.present or None),
            ("skipped before", plan.skipped_rows or None),
            ("at least", f"{plan.seconds} s" if plan.to_run else None),
        ]
    )


def _follow(session: Session, found: Backfill) -> Backfill:
    shown = 0
    with session.progress("Backfill …", found.total) as advance:
        for pause in pauses():
            advance(found.processed - shown)
            shown = found.processed
            if found.over:
                return found
            time.sleep(min(pause, 1.0))
            found = session.client.backfills.get(found.backfill_id)
    raise AssertionError("pauses never end")


def _card(session: Session, found: Backfill) -> RenderableType:
    return tables.card(
        [
            ("backfill", found.backfill_id),
            ("job", found.job_id),
            ("state", tables.state(found.state)),
            ("why", found.reason),
            ("started", found.started),
            ("had a run already", found.present or None),
            ("of", found.total),
            ("ended", moment(found.finished_at, session.now) if found.finished_at else None),
        ]
    )


@command(backfills, "list")
def list_backfills(
    session: Session,
    job: Annotated[str | None, typer.Option(help="Of this job's id.")] = None,
    limit: Limit = 20,
) -> None:
    """List backfills, the latest first."""
    walk = session.client.backfills.list(job_id=job, limit=min(limit, 200) if limit > 0 else 200)
    found = session.take(walk, limit)
    made = tables.table("backfill", "job", "state", "started", "of", "began", right=("started", "of"))
    for each in found:
        made.add_row(
            each.backfill_id, each.job_id, tables.state(each.state), str(each.started), str(each.total),
            moment(each.created_at, session.now),
        )  # fmt: skip
    session.answer(documents(found), lambda: made if found else "There were no backfills yet.")


@command(backfills, "get")
def get_backfill(session: Session, backfill: BackfillId) -> None:
    """Show how far a backfill is."""
    found = session.client.backfills.get(backfill)
    session.answer(found.raw, lambda: _card(session, found))


@command(backfills, "stop")
def stop_backfill(session: Session, backfill: BackfillId) -> None:
    """Start nothing more; what was started runs."""
    found = session.client.backfills.stop(backfill)
    session.answer(found.raw, lambda: _card(session, found))
