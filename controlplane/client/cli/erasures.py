"""`clockhouse erasure`: a tenant that goes for good; with TENANT or ERASURE, for operators' keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit
from controlplane.client.cli.session import Session, Wrong, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.erasure_calls import Erasure

app = typer.Typer(no_args_is_help=True, help="Erase a tenant for good, with a certificate.")

ErasureId = Annotated[
    str | None, typer.Argument(metavar="ERASURE", help="Its id: ers_…, for operators; else the tenant's own.")
]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]


@command(app, "plan")
def plan(session: Session) -> None:
    """Show what would be erased of the tenant, in numbers. Changes nothing."""
    found = session.client.erasure.get()
    session.answer(
        found.raw,
        lambda: "\n".join(
            f"{name.replace('_', ' ')}: {'not known' if value is None else value}"
            for name, value in found.plan.items()
        ),
    )


@command(app, "request")
def request(
    session: Session,
    confirm: Annotated[str, typer.Option(help="The tenant's short name, typed: nothing happens without.")],
    whom: Annotated[
        str | None, typer.Argument(metavar="TENANT", help="Its id: tnt_…, for operators; else the key's own.")
    ] = None,
    reason: Reason = None,
) -> None:
    """Have a tenant erased once the time of grace is over. Prints the link to the certificate, once."""
    if whom is None:
        made = session.client.erasure.request(confirm=confirm, reason=reason)
    else:
        made = session.client.erasures.request(whom, confirm=confirm, reason=reason)
    session.answer(made.raw, lambda: _table(session, [made]))
    session.say(
        f"It begins {moment(made.due_at, session.now)}; `clockhouse erasure cancel` stops it until then."
        "\nThe certificate, when all is erased, is fetched by this link, once:"
        f" {escape(made.certificate_link)}"
    )


@command(app, "show")
def show(session: Session, erasure: ErasureId = None) -> None:
    """Show how far an erasure is, and what it waits for."""
    found = _found(session, erasure)
    session.answer(found.raw, lambda: _table(session, [found]))


@command(app, "cancel")
def cancel(session: Session, erasure: ErasureId = None, reason: Reason = None) -> None:
    """Do not erase the tenant. Until the time of grace is over only."""
    if erasure is None:
        found = session.client.erasure.cancel(reason=reason)
    else:
        found = session.client.erasures.cancel(erasure, reason=reason)
    session.answer(found.raw, lambda: _table(session, [found]))


@command(app, "list")
def list_(session: Session, limit: Limit = 20) -> None:
    """List erasures, the newest first, with an operator's key."""
    found = session.take(session.client.erasures.list(), limit)
    session.answer(documents(found), lambda: _table(session, found))


@command(app, "certificate")
def certificate(
    session: Session, erasure: Annotated[str, typer.Argument(metavar="ERASURE", help="Its id: ers_…")]
) -> None:
    """Print an erasure's certificate as JSON, with an operator's key."""
    found = session.client.erasures.certificate(erasure)
    session.answer(found.raw, lambda: escape(_json(found.raw)))


def _json(raw: object) -> str:
    import json

    return json.dumps(raw, indent=1, ensure_ascii=False, sort_keys=True)


def _found(session: Session, erasure: str | None) -> Erasure:
    if erasure is not None:
        return session.client.erasures.get(erasure)
    own = session.client.erasure.get().erasure
    if own is None:
        raise Wrong("no erasure was asked for")
    return own


def _table(session: Session, erasures: Sequence[Erasure]) -> RenderableType:
    if not erasures:
        return "No tenant was erased, and none is to be."
    made = tables.table("erasure", "tenant", "state", "steps", "waits for", "begins or ended")
    for one in erasures:
        made.add_row(
            one.erasure_id,
            one.tenant_id,
            tables.state(one.state),
            f"{one.steps_done} of {len(one.steps)}",
            escape(one.why),
            moment(one.due_at or one.finished_at, session.now),
        )
    return made
