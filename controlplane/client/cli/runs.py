"""`clockhouse runs`, `clockhouse dlq`, `clockhouse stats`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit
from controlplane.client.cli.reading import seconds_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.documents import DeadLetter

app = typer.Typer(no_args_is_help=True, help="Runs: what happened, and where the time went.")
dlq = typer.Typer(no_args_is_help=True, help="Dead letters: runs that failed for good.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="Its id: job_…:2026-09-28T00:00:00Z")]


@command(app, "list")
def list_(
    session: Session,
    job: Annotated[str | None, typer.Option(help="Of this job.")] = None,
    state: Annotated[
        str | None, typer.Option(help="RUNNING, RETRY_WAIT, SUCCEEDED, FAILED, SKIPPED, …")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="That called this target.")] = None,
    since: Annotated[str | None, typer.Option(help="Scheduled at or after this instant.")] = None,
    until: Annotated[str | None, typer.Option(help="Scheduled before this instant.")] = None,
    ended_since: Annotated[str | None, typer.Option(help="Ended at or after this instant.")] = None,
    ended_until: Annotated[str | None, typer.Option(help="Ended before this instant.")] = None,
    limit: Limit = 50,
) -> None:
    """List runs, the newest scheduled first."""
    walk = session.client.runs.list(
        job_id=job,
        state=state.upper() if state else None,
        target=target,
        scheduled_from=since,
        scheduled_until=until,
        finished_from=ended_since,
        finished_until=ended_until,
        limit=min(limit, 200) if limit > 0 else 200,
    )
    runs = session.take(walk, limit)
    session.answer(documents(runs), lambda: tables.runs_table(runs, session.now))


@command(app, "get")
def get(session: Session, run: RunId) -> None:
    """Show a run with its attempts."""
    found = session.client.runs.get(run)
    session.answer(found.raw, lambda: tables.run_card(found, session.now))


@command(app, "wait")
def wait(
    session: Session, run: RunId, timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 300.0
) -> None:
    """Wait until a run is finished; exit status 1 unless it succeeded."""
    with session.progress(f"Waiting for {run} …"):
        found = session.client.runs.wait(run, timeout=timeout)
    session.answer(found.raw, lambda: tables.run_card(found, session.now))
    if not found.succeeded:
        raise typer.Exit(BAD_OUTCOME)


@command(app, "cancel")
def cancel(session: Session, run: RunId) -> None:
    """End a waiting run, or ask one under way to end."""
    found = session.client.runs.cancel(run)
    session.answer(found.raw, lambda: tables.run_card(found, session.now))


@command(dlq, "list")
def list_dead_letters(
    session: Session,
    target: Annotated[str | None, typer.Option("--target", "-t", help="That called this target.")] = None,
    fingerprint: Annotated[str | None, typer.Option(help="That failed in this way.")] = None,
    job: Annotated[str | None, typer.Option(help="Of this job (its id).")] = None,
    reason: Annotated[str | None, typer.Option(help="FAILED, UNKNOWN or POISON.")] = None,
    since: Annotated[str | None, typer.Option(help="Failed at or after this instant.")] = None,
    until: Annotated[str | None, typer.Option(help="Failed before this instant.")] = None,
    limit: Limit = 50,
) -> None:
    """List what failed for good, and the ways it failed in."""
    options: dict[str, Any] = {
        "target": target,
        "fingerprint": fingerprint,
        "job_id": job,
        "reason": reason.upper() if reason else None,
        "failed_from": since,
        "failed_until": until,
    }
    first = session.client.dlq.page(**options, limit=min(limit, 200) if limit > 0 else 200)
    if first.next_cursor is None or len(first.items) == limit:
        items = list(first.items)
        if first.next_cursor is not None:
            session.say(f"[dim]The first {limit} are shown; --limit 0 shows all.[/dim]")
    else:
        items = session.take(session.client.dlq.list(**options, limit=200), limit)
    document = {"groups": [group.raw for group in first.groups], "items": documents(items)}
    groups = tables.table(
        "fingerprint", "count", "target", "status", "error", "last", right=("count", "status")
    )
    for group in first.groups:
        groups.add_row(
            group.fingerprint,
            str(group.count),
            group.target_id or "–",
            str(group.http_status or "–"),
            escape(group.error or ""),
            moment(group.last_failed_at, session.now),
        )
    letters = letters_table(session, items)
    session.answer(document, lambda: Group(groups, "", letters) if items else "Nothing failed for good.")


def letters_table(session: Session, letters: Sequence[DeadLetter]) -> Table:
    """Dead letters, one in a row."""
    made = tables.table("run", "fingerprint", "status", "reason", "failed", right=("status",))
    for letter in letters:
        made.add_row(
            letter.run_id,
            letter.fingerprint,
            str(letter.http_status or "–"),
            escape(letter.reason or ""),
            moment(letter.failed_at, session.now),
        )
    return made


def stats(
    session: Session,
    last: Annotated[str, typer.Option(help="A period: 15m, 1h, 2d; 7 days at most.")] = "1h",
    since: Annotated[str | None, typer.Option(help="From this instant on, instead.")] = None,
    until: Annotated[str | None, typer.Option(help="Until this instant.")] = None,
) -> None:
    """Show runs per minute, and how late they started."""
    begin = since or session.now - timedelta(seconds=seconds_of(last))
    found = session.client.stats.read(since=begin, until=until)
    session.answer(found.raw, lambda: tables.stats_table(found, session.now))
