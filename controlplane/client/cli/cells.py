"""`clockhouse cell`: cells made, opened, drained and retired, with an operator's key."""

from __future__ import annotations

import functools
import os
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from controlplane.client.cell_documents import Cell
from controlplane.client.cli.cell_tables import (
    cell_card,
    cell_table,
    plan_table,
    relocation_card,
    relocation_table,
)
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents

app = typer.Typer(no_args_is_help=True, help="Cells and where tenants live, with an operator's key.")

Name = Annotated[str, typer.Argument(metavar="CELL", help="Its name.")]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]
AtOnce = Annotated[int, typer.Option(min=1, max=20, help="Tenants that move at the same time.")]
#: Between two looks at a cell or a relocation (seconds).
_LOOK_SECONDS = 1.0
_KEY = "CELL_KEYS"


@command(app, "add")
def add(
    session: Session,
    name: Name,
    region: Annotated[str, typer.Option(help="Where it is.")],
    url: Annotated[str, typer.Option(help="Where its API will answer: http://host:port")],
    database_url: Annotated[
        str, typer.Option(envvar="CELL_DATABASE_URL", help="Its PostgreSQL: an empty database of its own.")
    ],
    valkey_url: Annotated[str, typer.Option(envvar="CELL_VALKEY_URL", help="Its Valkey, for it alone.")],
    env_file: Annotated[
        Path | None, typer.Option(help="Where its environment is written (0600); CELL.env, if absent.")
    ] = None,
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Kept for one tenant.")] = False,
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Runs a second it was measured to carry.")
    ] = None,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait until it works.")] = 120,
    reason: Reason = None,
) -> None:
    """Make a cell: look at its engines, migrate its database, register it, and wait until it works.

    It takes no tenant until `clockhouse cell open`. Its signing key is made here, and is in the environment
    file before anything else knows it; run again, with the same file, it goes on where it broke off.
    """
    file = env_file or Path(f"{name}.env")
    key = _key_in(file) or secrets.token_hex(32)
    _write(file, _environment(name, region, url, database_url, valkey_url, key))
    added = session.client.cells.add(
        name,
        region=region,
        url=url,
        database_url=database_url,
        valkey_url=valkey_url,
        key_hex=key,
        kind="DEDICATED" if dedicated else "SHARED",
        capacity_runs_per_second=capacity,
        reason=reason,
    )
    session.say(
        f"{name} is {'registered' if added.made else 'as it was registered'}; {len(added.applied)} migrations"
        f" were applied. Its environment is in {file}."
    )
    for warning in added.warnings:
        session.say(f"[yellow]Warning:[/yellow] {warning}")
    session.say(f"Start it where it shall run: set -a; . {file}; python -m cells.host")
    ready = _until_ready(session, name, wait)
    session.now = datetime.now(UTC)  # it may have taken a while
    found = session.client.cells.get(name)
    session.answer(dict(found.raw) | {"ready": ready}, functools.partial(cell_card, session, found))
    if not ready:
        session.say(f"Not ready yet. `clockhouse cell check {name}` says what it waits for.")
        raise typer.Exit(BAD_OUTCOME)
    if found.state == "CORDONED":
        session.say(f"`clockhouse cell open {name}` lets it take tenants.")


def _environment(
    name: str, region: str, url: str, database_url: str, valkey_url: str, key: str
) -> dict[str, str]:
    """What the cell's processes are told, but for what all cells of the installation share."""
    return {
        "CELL_NAME": name,
        "CELL_REGION": region,
        "CELL_BIND": url.split(",")[0].partition("://")[2].split("/")[0],
        "CELL_DATABASE_URL": f"'{database_url}'",
        "CELL_VALKEY_URL": f"'{valkey_url}'",
        _KEY: f"{name}:{key}",
    }


_SHARED = (
    "# Of the installation; every cell has the same two:",
    "#CELL_INSTALLATION_KEY=",
    "#CELL_CONTROL_URL=",
)


def _key_in(file: Path) -> str | None:
    """The key of an earlier run."""
    if not file.exists():
        return None
    for line in file.read_text().splitlines():
        if line.startswith(f"{_KEY}="):
            return line.partition(":")[2].strip() or None
    raise Wrong(f"{file} is there and holds no {_KEY}; name another --env-file")


def _write(file: Path, values: dict[str, str]) -> None:
    """A file only its owner can read. Of one that is there, the same variables are set anew (an address may
    have been wrong), and what somebody has added to it stays."""
    lines = file.read_text().splitlines() if file.exists() else list(_SHARED)
    left = dict(values)
    for n, line in enumerate(lines):
        variable = line.partition("=")[0]
        if variable in left:
            lines[n] = f"{variable}={left.pop(variable)}"
    made = [f"{variable}={value}" for variable, value in left.items()]
    text = "\n".join([*made, *lines, ""])
    beside = file.with_name(file.name + ".new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as opened:
        opened.write(text)
    beside.rename(file)


def _until_ready(session: Session, name: str, wait: int) -> bool:
    said: tuple[str, ...] = ()
    until = time.monotonic() + wait
    while True:
        found = session.client.cells.check(name)
        if found.ready:
            return True
        if tuple(found.waits_for) != said and not session.as_json:
            said = tuple(found.waits_for)
            for line in said:
                session.say(f"waits: {line}")
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_SECONDS)


@command(app, "list")
def list_(
    session: Session,
    region: Annotated[str | None, typer.Option(help="Of this region.")] = None,
    state: Annotated[str | None, typer.Option(help="OPEN, CORDONED, DRAINING, RETIRED")] = None,
    limit: Limit = 50,
) -> None:
    """List cells with what is promised on them."""
    found = session.take(session.client.cells.list(region=region, state=state), limit)
    session.answer(documents(found), lambda: cell_table(session, found))


@command(app, "show")
def show(session: Session, name: Name) -> None:
    """Show a cell with its sites, and how far it is drained or filled."""
    found = session.client.cells.get(name)
    session.answer(found.raw, functools.partial(cell_card, session, found))


@command(app, "check")
def check(session: Session, name: Name) -> None:
    """Ask a cell now whether it works. Status 1 if it does not."""
    found = session.client.cells.check(name)
    session.answer(
        found.raw,
        lambda: f"{name} works." if found.ready else "\n".join(f"waits: {w}" for w in found.waits_for),
    )
    if not found.ready:
        raise typer.Exit(BAD_OUTCOME)


@command(app, "open")
def open_(session: Session, name: Name, reason: Reason = None) -> None:
    """Let a cell take new tenants (again)."""
    found = session.client.cells.open(name, reason=reason)
    session.answer(found.raw, functools.partial(cell_card, session, found))


@command(app, "cordon")
def cordon(session: Session, name: Name, reason: Reason = None) -> None:
    """Let a cell take no new tenants; those there stay."""
    found = session.client.cells.cordon(name, reason=reason)
    session.answer(found.raw, functools.partial(cell_card, session, found))


@command(app, "retire")
def retire(session: Session, name: Name, yes: Yes = False, reason: Reason = None) -> None:
    """Say that a cell is gone for good. It must be empty, and all that it metered sealed and shipped."""
    session.confirm(f"Retire {name}? Its name is not used again.", yes=yes)
    found = session.client.cells.retire(name, reason=reason)
    session.answer(found.raw, functools.partial(cell_card, session, found))


@command(app, "plan")
def plan(
    session: Session,
    name: Name,
    fill: Annotated[bool, typer.Option("--fill", help="Who would come, instead of who would leave.")] = False,
) -> None:
    """Show who would move where if the cell were drained. Moves nobody."""
    found = session.client.cells.plan(name, kind="FILL" if fill else "DRAIN")
    session.answer(found.raw, lambda: plan_table(found))


@command(app, "drain")
def drain(
    session: Session,
    name: Name,
    at_once: AtOnce = 1,
    override: Annotated[
        bool, typer.Option("--override", help="Even where some fit nowhere; those stay until there is room.")
    ] = False,
    watch_it: Annotated[bool, typer.Option("--watch", help="Follow it to its end.")] = False,
    yes: Yes = False,
    reason: Reason = None,
) -> None:
    """Move every tenant of a cell away while they work. Shows the numbers and asks first."""
    found = session.client.cells.plan(name, kind="DRAIN")
    runs = sum(step.job_runs_per_second for step in found.steps)
    nowhere = f" {found.nowhere} fit on no other cell." if found.nowhere else ""
    session.confirm(
        f"Drain {name}? {len(found.steps)} tenants with {runs:,} runs/s promised move away.{nowhere}", yes=yes
    )
    cell = session.client.cells.drain(name, at_once=at_once, override=override or None, reason=reason)
    _begun(session, cell, watch_it)


@command(app, "fill")
def fill(
    session: Session,
    name: Name,
    at_once: AtOnce = 1,
    watch_it: Annotated[bool, typer.Option("--watch", help="Follow it to its end.")] = False,
    yes: Yes = False,
    reason: Reason = None,
) -> None:
    """Move tenants of fuller cells to one, until it is about as full. Shows the numbers and asks first."""
    found = session.client.cells.plan(name, kind="FILL")
    runs = sum(step.job_runs_per_second for step in found.steps)
    session.confirm(
        f"Fill {name}? {len(found.steps)} tenants with {runs:,} runs/s promised come to it.", yes=yes
    )
    cell = session.client.cells.fill(name, at_once=at_once, reason=reason)
    _begun(session, cell, watch_it)


def _begun(session: Session, cell: Cell, watch_it: bool) -> None:
    if watch_it and cell.relocation is not None:
        _watch(session, cell.relocation.relocation_id)
    else:
        session.answer(cell.raw, functools.partial(cell_card, session, cell))


RelocationId = Annotated[str, typer.Argument(metavar="RELOCATION", help="Its id: rel_…")]


@command(app, "relocations")
def relocations(
    session: Session,
    cell: Annotated[str | None, typer.Option(help="Of this cell.")] = None,
    state: Annotated[str | None, typer.Option(help="RUNNING, PAUSED, DONE, STOPPED")] = None,
    limit: Limit = 50,
) -> None:
    """List drains and fills, the newest first."""
    found = session.take(session.client.relocations.list(cell=cell, state=state), limit)
    session.answer(documents(found), lambda: relocation_table(session, found))


@command(app, "watch")
def watch(session: Session, relocation: RelocationId) -> None:
    """Follow a drain or fill to its end. Status 1 if it was stopped."""
    _watch(session, relocation)


def _watch(session: Session, relocation_id: str) -> None:
    said = ""
    while True:
        found = session.client.relocations.get(relocation_id)
        if found.why != said and not session.as_json:
            session.say(f"{found.state}: {found.why}")
            said = found.why
        if found.over:
            session.answer(found.raw, functools.partial(relocation_card, session, found))
            if found.state != "DONE":
                raise typer.Exit(BAD_OUTCOME)
            return
        time.sleep(_LOOK_SECONDS)


@command(app, "pause")
def pause(session: Session, relocation: RelocationId, reason: Reason = None) -> None:
    """Begin no further moves of a drain or fill; those under way go on."""
    found = session.client.relocations.pause(relocation, reason=reason)
    session.answer(found.raw, functools.partial(relocation_card, session, found))


@command(app, "resume")
def resume(
    session: Session,
    relocation: RelocationId,
    at_once: Annotated[int | None, typer.Option(min=1, max=20, help="At another pace.")] = None,
    reason: Reason = None,
) -> None:
    """Begin moves again; of one that runs, only the pace changes."""
    found = session.client.relocations.resume(relocation, at_once=at_once, reason=reason)
    session.answer(found.raw, functools.partial(relocation_card, session, found))


@command(app, "stop")
def stop(session: Session, relocation: RelocationId, reason: Reason = None) -> None:
    """End a drain or fill: who has moved stays there; a drained cell stays CORDONED."""
    found = session.client.relocations.stop(relocation, reason=reason)
    session.answer(found.raw, functools.partial(relocation_card, session, found))
