"""Changes that people make to their own accounts by allauth's pages, written to the audit log."""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from allauth.mfa import signals as mfa
from django.http import HttpRequest

from controlplane.actors import Actor
from controlplane.events.recording import record
from controlplane.tenants.models import User


def _record(request: HttpRequest | None, user: User, action: str, **change: Any) -> None:
    address = request.META.get("REMOTE_ADDR", "") if request is not None else ""
    actor = Actor(name=user.actor_name, source=f"console {address}".strip())
    record(action=action, subject=user.public_id, tenant_id=None, actor=actor, reason="", **change)


def _password(*, request: HttpRequest, user: User, **_: Any) -> None:
    _record(request, user, "user.set_password")


def _email(
    *, request: HttpRequest, user: User, from_email_address: Any, to_email_address: Any, **_: Any
) -> None:
    _record(
        request,
        user,
        "user.change_email",
        before={"email": from_email_address.email if from_email_address else None},
        after={"email": to_email_address.email if to_email_address else None},
    )


def _factor_added(*, request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    _record(request, user, "user.add_factor", after={"type": authenticator.type})


def _factor_removed(*, request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    _record(request, user, "user.remove_factor", before={"type": authenticator.type})


def connect() -> None:
    """Listens from now on; called once, when the applications are ready."""
    for changed in (account.password_changed, account.password_set, account.password_reset):
        changed.connect(_password, dispatch_uid=f"audit {id(changed)}")
    account.email_changed.connect(_email, dispatch_uid="audit")
    mfa.authenticator_added.connect(_factor_added, dispatch_uid="audit")
    mfa.authenticator_removed.connect(_factor_removed, dispatch_uid="audit")
