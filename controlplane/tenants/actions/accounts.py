"""People's own accounts: made by an invitation, with what they prefer."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from zoneinfo import available_timezones

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.db import transaction

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Forbidden, Invalid
from controlplane.events.recording import record
from controlplane.tenants.actions.invitations import open_link
from controlplane.tenants.models import User

THEMES = ("auto", "light", "dark")


def has_way_in(user: User) -> bool:
    """Whether the person can sign in without a link from us."""
    return bool(user.is_active and user.has_usable_password())


@transaction.atomic
def create_invited_account(*, token: str, name: str, password: str, actor: Actor, reason: str) -> User:
    """The account of somebody who opened their invitation. The mail reached them, so the address is
    theirs. Raises as `open_link`, and `Conflicting` for somebody who can sign in already.

    The password was checked by the form it came from.
    """
    invitation = open_link(token)
    user = User.objects.select_for_update().filter(email=invitation.email).first()
    if user is not None and (has_way_in(user) or not user.is_active):
        raise Conflicting("there is an account for this address: sign in with it")
    user = user or User(email=invitation.email)
    user.name = name.strip()[:120]
    user.set_password(password)
    user.save()
    EmailAddress.objects.update_or_create(
        user=user, email=user.email, defaults={"verified": True, "primary": True}
    )
    themselves = replace(actor, name=user.actor_name)  # nobody is signed in while an account is made
    record(
        action="user.create", subject=user.public_id, tenant_id=invitation.tenant_id, actor=themselves,
        reason=reason, after={"email": user.email, "name": user.name},
    )  # fmt: skip
    return user


def zone_faults(zone: str, pointer: str) -> list[Fault]:
    """What is wrong with a time zone's name; empty is fine."""
    if not zone or zone in available_timezones():
        return []
    likely = likely_zone(zone)
    if likely:
        return [Fault(pointer=pointer, detail=f"no time zone of this name; did you mean {likely}?")]
    return [Fault(pointer=pointer, detail="no time zone of this name; Europe/Berlin is one")]


def likely_zone(text: str) -> str | None:
    """The zone somebody may mean who names a city, or mistypes."""
    wanted = text.strip().lower().replace(" ", "_").rsplit("/", 1)[-1]
    cities: dict[str, str] = {}
    for name in sorted(available_timezones(), reverse=True):
        if "/" in name and not name.startswith(("Etc/", "SystemV/", "posix/", "right/")):
            cities[name.rsplit("/", 1)[-1].lower()] = name
    near = get_close_matches(wanted, cities, n=1, cutoff=0.75)
    return cities[near[0]] if near else None


@transaction.atomic
def set_preferences(*, user: User, name: str, timezone: str, theme: str, actor: Actor, reason: str) -> User:
    """How pages look to a person; an empty zone or theme follows the browser."""
    faults = zone_faults(timezone, "/timezone")
    if theme not in ("", *THEMES):
        faults.append(Fault(pointer="/theme", detail=f"one of {', '.join(THEMES)}"))
    if len(name.strip()) > 120:
        faults.append(Fault(pointer="/name", detail="at most 120 characters"))
    if faults:
        raise Invalid(faults)
    wanted = {"name": name.strip(), "timezone": timezone, "theme": theme}
    changed = {field: value for field, value in wanted.items() if getattr(user, field) != value}
    if not changed:
        return user
    before = {field: getattr(user, field) for field in changed}
    for field, value in changed.items():
        setattr(user, field, value)
    user.save(update_fields=list(changed))
    record(
        action="user.set_preferences", subject=user.public_id, tenant_id=None, actor=actor, reason=reason,
        before=before, after=changed,
    )  # fmt: skip
    return user


@transaction.atomic
def remove_factors(*, user: User, actor: Actor, reason: str) -> int:
    """Takes every second factor off an account whose owner lost theirs; operators only."""
    if not actor.operator:
        raise Forbidden("operators take second factors off accounts")
    held = Authenticator.objects.filter(user=user)
    types = sorted(held.values_list("type", flat=True))
    if types:
        held.delete()
        record(
            action="user.remove_factor", subject=user.public_id, tenant_id=None, actor=actor, reason=reason,
            before={"types": types},
        )  # fmt: skip
    return len(types)


@transaction.atomic
def set_active(*, user: User, active: bool, actor: Actor, reason: str) -> User:
    """Closes an account (nobody signs in with it, its sessions end with the next click) or opens it again."""
    if not actor.operator:
        raise Forbidden("operators close and open accounts")
    if actor.name == user.actor_name:
        raise Conflicting("nobody closes their own account")
    if user.is_active != active:
        user.is_active = active
        user.save(update_fields=["is_active"])
        record(
            action="user.open" if active else "user.close", subject=user.public_id, tenant_id=None,
            actor=actor, reason=reason, before={"is_active": not active}, after={"is_active": active},
        )  # fmt: skip
    return user
