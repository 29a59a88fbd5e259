"""`clockhouse jobs pause-many`, `resume-many`, `cancel-many`; `clockhouse operations`; `clockhouse herd`"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.bulk_calls import Herd, Operation, Selection
from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, command, documents
from controlplane.client.cli.wording import counted, moment, offset
from controlplane.client.waiting import pauses

operations = typer.Typer(no_args_is_help=True, help="Changes of many jobs: how far they are.")

_DONE = {"pause": "paused", "resume": "scheduled again", "cancel": "cancelled"}
OperationId = Annotated[str, typer.Argument(metavar="OPERATION", help="Its id: op_…")]


def register(app: typer.Typer) -> None:
    """Add a command for each verb."""
    for action in _DONE:
        command(app, f"{action}-many")(_many(action))


def _many(action: str) -> Callable[..., None]:
    def change(
        session: Session,
        state: Annotated[str | None, typer.Option(help="SCHEDULED or PAUSED.")] = None,
        target: Annotated[str | None, typer.Option("--target", "-t", help="That call this target.")] = None,
        tag: Annotated[str | None, typer.Option(help="With this tag.")] = None,
        name_prefix: Annotated[str | None, typer.Option(help="Whose name begins so.")] = None,
        job: Annotated[list[str] | None, typer.Option(help="This job's id. May be repeated.")] = None,
        all_: Annotated[bool, typer.Option("--all", help="All jobs, if nothing else is said.")] = False,
        max_per_second: Annotated[int, typer.Option(help="Changed in a second, at most.")] = 200,
        yes: Yes = False,
    ) -> None:
        chosen = {
            "state": state.upper() if state else None, "target": target, "tag": tag,
            "name_prefix": name_prefix, "job_ids": job or None,
        }  # fmt: skip
        if not any(chosen.values()) and not all_:
            raise typer.BadParameter("say which jobs (--tag, --target, …), or --all")
        selection = session.client.selections.create(action, **chosen)
        if not selection.count:
            session.answer(selection.raw, lambda: f"No job can be {_DONE[action]}.")
            return
        if not session.as_json:
            session.out.print(_sample(session, selection))
        session.confirm(f"{action.capitalize()} {counted(selection.count, 'job')}?", yes=yes)
        found = session.client.selections.apply(
            selection.selection_id, selection.hash, max_per_second=max_per_second
        )
        found = _follow(session, found)
        session.answer(found.raw, lambda: _card(session, found))
        if found.failed or found.state != "DONE":
            raise typer.Exit(BAD_OUTCOME)

    change.__name__ = f"{action}_many"
    change.__doc__ = (
        f"{action.capitalize()} many jobs: they are frozen and shown first, and only they change."
    )
    return change


def _sample(session: Session, selection: Selection) -> RenderableType:
    made = tables.table("job", "name", "status", "next run")
    for job in selection.sample:
        made.add_row(
            job.job_id, escape(job.name or job.key or "–"), tables.state(job.status),
            moment(job.next_run_at, session.now),
        )  # fmt: skip
    more = selection.count - len(selection.sample)
    return Group(made, f"[dim]and {more} more[/dim]") if more > 0 else made


def _follow(session: Session, operation: Operation) -> Operation:
    shown = 0
    with session.progress(f"{operation.action.capitalize()} …", operation.total) as advance:
        for pause in pauses():
            advance(operation.processed - shown)
            shown = operation.processed
            if operation.over:
                return operation
            time.sleep(min(pause, 1.0))
            operation = session.client.operations.get(operation.operation_id)
    raise AssertionError("pauses never end")


def _card(session: Session, operation: Operation) -> RenderableType:
    rows = [
        ("operation", operation.operation_id),
        ("state", tables.state(operation.state)),
        (_DONE.get(operation.action, "done"), operation.done),
        ("unchanged", operation.unchanged or None),
        ("failed", operation.failed or None),
        ("of", operation.total),
        ("ended", moment(operation.finished_at, session.now) if operation.finished_at else None),
        *((f"why {count} failed", reason) for reason, count in operation.reasons.items()),
    ]
    return tables.card(rows)


@command(operations, "list")
def list_(session: Session, limit: Limit = 20) -> None:
    """List changes of many jobs, the latest first."""
    found = session.take(session.client.operations.list(limit=min(limit, 200) if limit > 0 else 200), limit)
    made = tables.table("operation", "action", "state", "done", "of", "began", right=("done", "of"))
    for operation in found:
        made.add_row(
            operation.operation_id, operation.action, tables.state(operation.state), str(operation.done),
            str(operation.total), moment(operation.created_at, session.now),
        )  # fmt: skip
    session.answer(documents(found), lambda: made if found else "There was no change of many jobs yet.")


@command(operations, "get")
def get(session: Session, operation: OperationId) -> None:
    """Show how far a change of many jobs is."""
    found = session.client.operations.get(operation)
    session.answer(found.raw, lambda: _card(session, found))


@command(operations, "stop")
def stop(session: Session, operation: OperationId) -> None:
    """Change nothing more; what is done stays done."""
    found = session.client.operations.stop(operation)
    session.answer(found.raw, lambda: _card(session, found))


def herd(
    session: Session,
    hours: Annotated[int, typer.Option(help="How far ahead; 48 at most.")] = 24,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Of this target.")] = None,
) -> None:
    """Show how much will be due, by the hour."""
    found = session.client.stats.herd(hours=hours, target=target)
    session.answer(found.raw, lambda: _hours(session, found))


def _hours(session: Session, found: Herd) -> RenderableType:
    by_hour: dict[str, int] = {}
    for each in found.minutes:
        local = each.minute.astimezone()
        hour = f"{local:%a %d %b, %H:00}{offset(local)}"
        by_hour[hour] = by_hour.get(hour, 0) + each.count
    if not by_hour:
        return "Nothing is due in that time."
    most = max(by_hour.values())
    made = tables.table("hour", "due", "", right=("due",))
    for hour, count in by_hour.items():
        made.add_row(hour, str(count), "█" * max(1, round(30 * count / most)))
    peak = f"The busiest minute has {found.peak.count} due." if found.peak else ""
    return Group(made, f"[dim]{found.total} in all. {peak}[/dim]")
