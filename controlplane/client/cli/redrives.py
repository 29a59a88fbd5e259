"""`clockhouse dlq redrive`, `purge`, `redrives`, `stop`: dead letters tried again or done with."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.runs import dlq as dlq
from controlplane.client.cli.runs import letters_table
from controlplane.client.cli.session import BAD_OUTCOME, Session, command, documents
from controlplane.client.cli.wording import counted, moment
from controlplane.client.redrive_calls import LetterSelection, Redrive

Target = Annotated[str | None, typer.Option("--target", "-t", help="That called this target.")]
Fingerprint = Annotated[str | None, typer.Option(help="That failed in this way.")]
Job = Annotated[str | None, typer.Option(help="Of this job.")]
Reason = Annotated[
    str | None, typer.Option(help="That ended so: FAILED, UNKNOWN (nobody knows), POISON (ended hosts).")
]
After = Annotated[str | None, typer.Option(help="That failed at or after this instant.")]
Before = Annotated[str | None, typer.Option(help="That failed before this instant.")]
Runs = Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="These runs only.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters, if nothing else is said.")]
Rate = Annotated[int, typer.Option("--rate", help="Letters a second, at most.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it has ended.")]
RedriveId = Annotated[str, typer.Argument(metavar="REDRIVE", help="Its id: op_…")]

_LOOK_SECONDS = 0.5


@command(dlq, "redrive")
def redrive(
    session: Session,
    runs: Runs = None,
    target: Target = None,
    fingerprint: Fingerprint = None,
    job: Job = None,
    reason: Reason = None,
    after: After = None,
    before: Before = None,
    all_: All = False,
    rate: Rate = 50,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Try dead letters again: one of each way to fail first, then ten, then the rest. It stops by itself
    when one fails as before; exit status 1 then."""
    options = {
        "target": target,
        "fingerprint": fingerprint,
        "job_id": job,
        "reason": reason.upper() if reason else None,
    }
    times = {"failed_after": after, "failed_before": before}
    chosen = {**options, **times, "run_ids": runs or None}
    _begin(session, "redrive", chosen, all_=all_, rate=rate, yes=yes, wait=wait)


@command(dlq, "purge")
def purge(
    session: Session,
    runs: Runs = None,
    target: Target = None,
    fingerprint: Fingerprint = None,
    job: Job = None,
    reason: Reason = None,
    after: After = None,
    before: Before = None,
    all_: All = False,
    rate: Rate = 1000,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Be done with dead letters: they leave the queue and are not tried again."""
    options = {
        "target": target,
        "fingerprint": fingerprint,
        "job_id": job,
        "reason": reason.upper() if reason else None,
    }
    times = {"failed_after": after, "failed_before": before}
    chosen = {**options, **times, "run_ids": runs or None}
    _begin(session, "purge", chosen, all_=all_, rate=rate, yes=yes, wait=wait)


def _begin(
    session: Session, action: str, options: dict[str, Any], *, all_: bool, rate: int, yes: bool, wait: bool
) -> None:
    if not any(options.values()) and not all_:
        raise typer.BadParameter("say which dead letters (--target, --fingerprint, …), or --all")
    chosen = session.client.dlq.choose(action, **options)
    if not chosen.count:
        session.answer({"count": 0}, lambda: "No open dead letter fits.")
        return
    if not session.as_json:
        session.out.print(_sample(session, chosen))
    said = counted(chosen.count, "dead letter")
    session.confirm(f"{action.capitalize()} {said}, at most {rate} a second?", yes=yes)
    found = session.client.dlq.begin(chosen, max_per_second=rate)
    if wait:
        with session.progress(f"{action.capitalize()} {found.redrive_id} …"):
            while not found.over:
                time.sleep(_LOOK_SECONDS)
                found = session.client.dlq.redrive(found.redrive_id)
    session.answer(found.raw, lambda: _table([found], session))
    if found.state == "STOPPED":
        if found.stop_reason:
            session.say(escape(found.stop_reason))
        raise typer.Exit(BAD_OUTCOME)


def _sample(session: Session, chosen: LetterSelection) -> RenderableType:
    made = letters_table(session, chosen.sample)
    more = chosen.count - len(chosen.sample)
    return Group(made, f"[dim]and {more} more[/dim]") if more > 0 else made


@command(dlq, "redrives")
def redrives(
    session: Session, state: Annotated[str | None, typer.Option(help="RUNNING, STOPPED, DONE")] = None
) -> None:
    """List redrives and purges, the newest first."""
    found = session.take(session.client.dlq.redrives(state=state.upper() if state else None), 50)
    session.answer(documents(found), lambda: _table(found, session))


@command(dlq, "stop")
def stop(session: Session, redrive: RedriveId) -> None:
    """Stop a redrive or purge; what is done stays done."""
    found = session.client.dlq.stop(redrive)
    session.answer(found.raw, lambda: _table([found], session))


def _table(found: list[Redrive], session: Session) -> RenderableType:
    table = tables.table("id", "action", "state", "done", "of", "rate", "begun", right=("done", "of", "rate"))
    for one in found:
        state = one.state if one.stage is None else f"{one.state} ({one.stage})"
        table.add_row(
            one.redrive_id,
            one.action,
            state,
            str(one.done),
            str(one.total),
            str(one.max_per_second),
            moment(one.created_at, session.now),
        )
    return table
