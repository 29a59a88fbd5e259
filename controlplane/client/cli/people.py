"""`clockhouse keys`, `clockhouse members`"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.reading import seconds_of
from controlplane.client.cli.session import Session, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.documents import ApiKey, Member

keys = typer.Typer(no_args_is_help=True, help="API keys of the tenant.")
members = typer.Typer(no_args_is_help=True, help="People of the tenant.")

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="Its id, the middle part of a key.")]
MemberId = Annotated[str, typer.Argument(metavar="MEMBER", help="Its id: mem_…")]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]


# --- keys --------------------------------------------------------------------------------
@command(keys, "list")
def list_keys(session: Session, limit: Limit = 50) -> None:
    """List keys, live and gone, without their texts."""
    found = session.take(session.client.api_keys.list(), limit)
    session.answer(documents(found), lambda: tables.keys_table(found, session.now))


@command(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        list[str], typer.Option("--scope", "-s", help="jobs:read, jobs:write, … May be repeated.")
    ],
    expires_in: Annotated[str | None, typer.Option(help="A period: 12h, 90d.")] = None,
    reason: Reason = None,
) -> None:
    """Make a key. Its text is shown this once."""
    expires_at = session.now + timedelta(seconds=seconds_of(expires_in)) if expires_in else None
    _issued(session, session.client.api_keys.create(name, scope, expires_at=expires_at, reason=reason))


@command(keys, "rotate")
def rotate_key(
    session: Session,
    key: KeyId,
    grace: Annotated[str, typer.Option(help="How long the old one goes on: 1h, 1d.")] = "1d",
    reason: Reason = None,
) -> None:
    """Make a key's successor. The old one goes on for the grace period."""
    _issued(session, session.client.api_keys.rotate(key, grace_seconds=seconds_of(grace), reason=reason))


@command(keys, "revoke")
def revoke_key(session: Session, key: KeyId, yes: Yes = False, reason: Reason = None) -> None:
    """End a key, within seconds."""
    session.confirm(f"End the key {key}? Whoever uses it is refused from then on.", yes=yes)
    found = session.client.api_keys.revoke(key, reason=reason)
    session.answer(found.raw, lambda: tables.keys_table([found], session.now))


def _issued(session: Session, key: ApiKey) -> None:
    session.answer(key.raw, lambda: tables.keys_table([key], session.now))
    if key.api_key and not session.as_json:
        session.say("The key, shown this once:")
        session.out.print(key.api_key, soft_wrap=True)


# --- members -----------------------------------------------------------------------------
@command(members, "list")
def list_members(session: Session, limit: Limit = 50) -> None:
    """List the people of the tenant."""
    found = session.take(session.client.members.list(), limit)
    session.answer(documents(found), lambda: _members_table(session, found))


@command(members, "add")
def add_member(
    session: Session,
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The person's address.")],
    role: Annotated[str, typer.Option(help="admin, developer or viewer.")] = "developer",
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    payloads: Annotated[bool, typer.Option("--payloads", help="May see payloads.")] = False,
    reason: Reason = None,
) -> None:
    """Add a person by email."""
    found = session.client.members.add(
        email, role, name=name, may_see_payloads=payloads or None, reason=reason
    )
    session.answer(found.raw, lambda: _members_table(session, [found]))


@command(members, "edit")
def edit_member(
    session: Session,
    member: MemberId,
    role: Annotated[str | None, typer.Option(help="admin, developer or viewer.")] = None,
    payloads: Annotated[
        bool | None, typer.Option("--payloads/--no-payloads", help="May see payloads.")
    ] = None,
    reason: Reason = None,
) -> None:
    """Give a person another role, or payload sight."""
    found = session.client.members.edit(member, role=role, may_see_payloads=payloads, reason=reason)
    session.answer(found.raw, lambda: _members_table(session, [found]))


@command(members, "remove")
def remove_member(session: Session, member: MemberId, yes: Yes = False) -> None:
    """Take a person out of the tenant."""
    session.confirm(f"Take {member} out of the tenant?", yes=yes)
    session.client.members.remove(member)
    session.answer({"member_id": member, "removed": True}, lambda: f"{escape(member)} is out of the tenant.")


def _members_table(session: Session, found: list[Member]) -> object:
    made = tables.table("member", "email", "name", "role", "payloads", "since")
    for member in found:
        made.add_row(
            member.member_id,
            escape(member.email),
            escape(member.name or ""),
            member.role,
            "yes" if member.may_see_payloads or member.role in ("owner", "admin") else "no",
            moment(member.created_at, session.now),
        )
    return made
