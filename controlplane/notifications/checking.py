"""What somebody says about a rule, and everything that is wrong with it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from cells.domain.egress import refusal_of_url
from controlplane.errors import Fault, one_line
from controlplane.notifications.kinds import offered
from controlplane.notifications.mails import addresses
from controlplane.notifications.matching import EVERYTHING, FIELDS
from controlplane.notifications.models import Channel, NotificationRule

#: Addresses of one rule, words in a filter, and the longest digest (minutes).
MOST_EMAILS, MOST_WORDS, LONGEST_DIGEST = 20, 50, 1440


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What somebody says about a rule."""

    name: str
    kinds: Sequence[str]
    filters: Mapping[str, Any]
    channel: str
    url: str = ""
    emails: Sequence[str] = ()
    digest_minutes: int = 0
    enabled: bool = True

    @classmethod
    def of(cls, rule: NotificationRule) -> Wanted:
        return cls(
            name=rule.name, kinds=rule.kinds, filters=rule.filters, channel=rule.channel, url=rule.url,
            emails=rule.emails, digest_minutes=rule.digest_minutes, enabled=rule.enabled,
        )  # fmt: skip


def faults_of(wanted: Wanted, *, tenant_id: uuid.UUID | None) -> list[Fault]:
    """Everything that is wrong with a rule."""
    faults = []

    def wrong(pointer: str, detail: str) -> None:
        faults.append(Fault(pointer=pointer, detail=detail))

    if not 0 < len(wanted.name.strip()) <= 120 or not one_line(wanted.name.strip()):
        wrong("/name", "1 to 120 characters, in one line and without control characters")
    known = {kind.name for kind in offered(operators=tenant_id is None)} | {EVERYTHING}
    for n, kind in enumerate(wanted.kinds):
        if kind not in known:
            wrong(f"/kinds/{n}", f"there is no kind {kind[:60]!r}; GET /v1/notification-kinds lists them")
    if not wanted.kinds:
        wrong("/kinds", "at least one")
    if len(set(wanted.kinds)) != len(wanted.kinds):
        wrong("/kinds", "each kind once")
    faults += _filter_faults(wanted.filters, operators=tenant_id is None)
    if not 0 <= wanted.digest_minutes <= LONGEST_DIGEST:
        wrong("/digest_minutes", f"0 (each event at once) to {LONGEST_DIGEST}")
    if wanted.channel == Channel.WEBHOOK:
        if wanted.emails:
            wrong("/emails", "belong to the channel EMAIL")
        if why := _url_refusal(wanted.url):
            wrong("/url", why)
    elif wanted.channel == Channel.EMAIL:
        if wanted.url:
            wrong("/url", "belongs to the channel WEBHOOK")
        faults += _email_faults(wanted.emails, tenant_id)
    else:
        wrong("/channel", "WEBHOOK or EMAIL")
    return faults


def _url_refusal(url: str) -> str | None:
    if not url:
        return "where messages are posted: an http or https address"
    if len(url) > 2000 or not url.isascii() or not url.isprintable() or " " in url:
        return "at most 2,000 printable ASCII characters, escaped where needed"
    # A query is a part of many receivers' addresses; a target's base URL has none.
    return (why := refusal_of_url(url.partition("?")[0], settings.NOTIFICATIONS["egress_allow"])) and (
        f"cannot be called: {why}" if "address" in why else why
    )


def _filter_faults(filters: Mapping[str, Any], *, operators: bool) -> list[Fault]:
    faults = [
        Fault(pointer=f"/filters/{name}", detail=f"there is no such filter: {', '.join(FIELDS)}")
        for name in sorted(set(filters) - set(FIELDS))
    ]
    if len(str(filters.get("name_prefix") or "")) > 200:
        faults.append(Fault(pointer="/filters/name_prefix", detail="at most 200 characters"))
    for name in ("tags", "target_ids", "tenant_ids"):
        words = filters.get(name) or []
        if len(words) > MOST_WORDS:
            faults.append(Fault(pointer=f"/filters/{name}", detail=f"at most {MOST_WORDS}"))
        faults += [
            Fault(pointer=f"/filters/{name}/{n}", detail="1 to 200 characters")
            for n, word in enumerate(words)
            if not 0 < len(word) <= 200
        ]
    if filters.get("tenant_ids") and not operators:
        faults.append(Fault(pointer="/filters/tenant_ids", detail="is for operators' rules"))
    return faults


def _email_faults(emails: Sequence[str], tenant_id: uuid.UUID | None) -> list[Fault]:
    if not 0 < len(emails) <= MOST_EMAILS:
        return [Fault(pointer="/emails", detail=f"1 to {MOST_EMAILS} addresses")]
    known = set(addresses(NotificationRule(tenant_id=tenant_id, emails=list(emails))))
    whose = "an operator" if tenant_id is None else "a member of this workspace"
    return [
        Fault(pointer=f"/emails/{n}", detail=f"{email} is no address of {whose}")
        for n, email in enumerate(emails)
        if email not in known
    ]
