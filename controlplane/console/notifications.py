"""Notification rules: who hears of what, by which way, and what came of each message."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import Form, ask, done, first_use, not_done, not_used
from controlplane.console.lists import PAGE, next_page
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import NotFound, Refused, VersionMismatch, invalid
from controlplane.identity import decode
from controlplane.notifications import forms, rules
from controlplane.notifications.models import (
    DELIVERY,
    OPEN,
    RULE,
    Delivery,
    DeliveryState,
    NotificationRule,
)
from controlplane.notifications.wording import sentence
from controlplane.tenants.models import Membership

#: Messages are counted so far in a page.
_COUNTED = 1_000
GRACES = ((0, "at once"), (1, "in an hour"), (24, "in a day"), (168, "in a week"), (720, "in 30 days"))


def _rule(visit: Visit, text: str) -> NotificationRule:
    try:
        return rules.find_rule(decode(RULE, text), tenant_id=visit.tenant.id)
    except NotFound:
        raise Http404 from None


@tenant_page(Scope.ADMIN)
def rule_list(visit: Visit) -> HttpResponse:
    """GET …/settings/notifications/"""
    known = list(NotificationRule.objects.filter(tenant=visit.tenant).order_by("id"))
    for rule in known:
        vars(rule).update(
            unsent=_counted(Delivery.objects.filter(rule=rule, state__in=OPEN)),
            dead=_counted(Delivery.objects.filter(rule=rule, state=DeliveryState.DEAD)),
        )
    return visit.page(
        "console/notifications/list.html", section="settings", tab="notifications",
        rules=known, digests=dict(forms.DIGESTS),
    )  # fmt: skip


def _counted(deliveries: QuerySet[Delivery]) -> int:
    """How many; of very many, so many at least."""
    return len(deliveries.values_list("pk")[:_COUNTED])


@tenant_page(Scope.ADMIN, "GET", "POST")
def rule_new(visit: Visit) -> HttpResponse:
    """GET shows the form; POST makes the rule and shows a webhook's secret, once."""
    if visit.request.method == "GET":
        return _form(visit, Form(values=forms.usual()))
    values = forms.typed(visit.request.POST)
    token = visit.request.POST.get("token", "")[:64]
    if not first_use(visit.request, token):
        done(visit, "The rule was made already.")
        return redirect(visit.url("notifications"))
    try:
        made = rules.create_rule(
            tenant_id=visit.tenant.id, wanted=forms.wanted(values), actor=visit.actor, reason=""
        )
    except Refused as refused:
        not_used(visit.request, token)
        return _form(visit, Form.refused(values, refused, fields=forms.FIELDS), status=422)
    return _saved(visit, made, "is made")


@tenant_page(Scope.ADMIN, "GET", "POST")
def rule_edit(visit: Visit, rule_id: str) -> HttpResponse:
    """GET …/<id>/edit shows the form; POST saves it."""
    rule = _rule(visit, rule_id)
    if visit.request.method == "GET":
        return _form(visit, Form(values=forms.stored(rule)), rule=rule)
    values = forms.typed(visit.request.POST)
    wanted = forms.wanted(values)
    try:
        made = rules.edit_rule(
            tenant_id=visit.tenant.id, rule_id=rule.id,
            changes={name: getattr(wanted, name) for name in rules.Wanted.__slots__},
            expected_version=_version(visit), actor=visit.actor, reason="",
        )  # fmt: skip
    except VersionMismatch:
        form = Form(values=values, general=["Somebody else changed the rule meanwhile. Open it anew."])
        return _form(visit, form, rule=rule, status=409)
    except Refused as refused:
        form = Form.refused(values, refused, fields=forms.FIELDS)
        return _form(visit, form, rule=rule, status=422)
    return _saved(visit, made, "is saved")


def _version(visit: Visit) -> int | None:
    text = visit.request.POST.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _form(
    visit: Visit, form: Form, *, rule: NotificationRule | None = None, status: int = 200
) -> HttpResponse:
    people = Membership.objects.select_related("user").filter(tenant=visit.tenant, user__is_active=True)
    return visit.page(
        "console/notifications/form.html", status=status, section="settings", tab="notifications",
        form=form, rule=rule, groups=forms.groups(operators=False), digests=forms.DIGESTS,
        people=sorted(member.user.email for member in people), token=str(uuid.uuid4()),
    )  # fmt: skip


def _saved(visit: Visit, made: rules.Made, happened: str) -> HttpResponse:
    if made.secret is not None:
        return visit.page(
            "console/notifications/secret.html", section="settings", tab="notifications",
            rule=made.rule, secret=made.secret, happened=happened,
        )  # fmt: skip
    done(visit, "The rule {} {}.", made.rule.name, happened)
    return redirect(visit.url("notification", made.rule.public_id))


@tenant_page(Scope.ADMIN)
def rule_page(visit: Visit, rule_id: str) -> HttpResponse:
    """GET …/<id>/: the rule, how its receiver does, and its delivery log."""
    rule = _rule(visit, rule_id)
    state = visit.request.GET.get("state", "")
    found = Delivery.objects.filter(rule=rule)
    if state in DeliveryState.values:
        found = found.filter(state=state)
    cursor = decode(DELIVERY, visit.request.GET.get("cursor", ""))
    if cursor is not None:
        found = found.filter(id__lt=cursor)
    deliveries = list(found.order_by("-id")[: PAGE + 1])
    more, deliveries = len(deliveries) > PAGE, deliveries[:PAGE]
    return visit.page(
        "console/notifications/rule.html", section="settings", tab="notifications", rule=rule,
        deliveries=deliveries, state=state, states=DeliveryState.values, digests=dict(forms.DIGESTS),
        filters=_filters(rule), next=next_page(
            visit, {"state": state} if state else {}, deliveries[-1].public_id if more else None
        ), paged=cursor is not None,
    )  # fmt: skip


def _filters(rule: NotificationRule) -> list[tuple[str, str]]:
    said: Mapping[str, str] = {
        "name_prefix": "names begin with", "tags": "jobs have one of the tags", "target_ids": "targets",
        "tenant_ids": "tenants",
    }  # fmt: skip
    return [
        (word, value if isinstance(value, str) else ", ".join(value))
        for name, word in said.items()
        if (value := rule.filters.get(name))
    ]


@tenant_page(Scope.ADMIN, "GET", "POST")
def rule_action(visit: Visit, rule_id: str, verb: str) -> HttpResponse:
    """GET …/rotate, …/remove says what it touches; POST does it. POST …/test, …/enable, …/disable at once."""
    rule = _rule(visit, rule_id)
    here = visit.url("notification", rule.public_id)
    if verb not in ("rotate", "remove", "test", "enable", "disable"):
        raise Http404
    if visit.request.method == "GET":
        if verb not in ("rotate", "remove"):
            raise Http404
        return _ask(visit, rule, verb)
    common: dict[str, Any] = {
        "tenant_id": visit.tenant.id, "rule_id": rule.id, "actor": visit.actor, "reason": ""
    }  # fmt: skip
    try:
        if verb == "rotate":
            return _saved(visit, rules.rotate_secret(overlap=_overlap(visit), **common), "has a new secret")
        if verb == "remove":
            unsent = rules.remove_rule(**common)
            done(visit, "The rule {} is gone; {} message(s) were not sent any more.", rule.name, unsent)
            return redirect(visit.url("notifications"))
        if verb == "test":
            delivery = rules.test_rule(**common)
            done(
                visit, "A test is on its way.",
                link=(visit.url("notification-delivery", delivery.public_id), "What came of it"),
            )  # fmt: skip
        else:
            rules.edit_rule(changes={"enabled": verb == "enable"}, **common)
            done(visit, "The rule {} is {}d.", rule.name, verb)
    except Refused as refused:
        not_done(visit, refused)
    return redirect(here)


def _overlap(visit: Visit) -> timedelta:
    asked = visit.request.POST.get("grace_hours", "24")
    if asked not in {str(value) for value, _ in GRACES}:
        raise invalid("/grace_hours", f"one of {', '.join(str(value) for value, _ in GRACES)}")
    return timedelta(hours=int(asked))


def _ask(visit: Visit, rule: NotificationRule, verb: str) -> HttpResponse:
    common = {"back": visit.url("notification", rule.public_id), "tab": "notifications"}
    if verb == "rotate":
        return ask(
            visit, title=f"Rotate the secret of {rule.name}", points=[
                "1 new secret is made and shown once.",
                "Messages are signed with both until the time you choose: change over whenever you like.",
            ], verb="Rotate", danger=False, graces=GRACES, keep="Keep it", **common,
        )  # fmt: skip
    unsent = Delivery.objects.filter(rule=rule, state__in=OPEN).count()
    logged = _counted(Delivery.objects.filter(rule=rule))
    told = f"{logged} and more" if logged == _COUNTED else str(logged)
    return ask(
        visit, title=f"Remove the rule {rule.name}", points=[
            f"{unsent} message(s) that wait are not sent.",
            f"The log of its {told} message(s) goes, too. This cannot be undone; disabling can.",
        ], verb="Remove", keep="Keep it", **common,
    )  # fmt: skip


@tenant_page(Scope.ADMIN, "GET", "POST")
def delivery_page(visit: Visit, delivery_id: str) -> HttpResponse:
    """GET …/deliveries/<id>/: a message, its events and every try; POST sends it again."""
    try:
        delivery = rules.find_delivery(decode(DELIVERY, delivery_id), tenant_id=visit.tenant.id)
    except NotFound:
        raise Http404 from None
    if visit.request.method == "POST":
        try:
            rules.redeliver(tenant_id=visit.tenant.id, delivery_id=delivery.id, actor=visit.actor, reason="")
        except Refused as refused:
            not_done(visit, refused)
        else:
            done(visit, "The message is on its way again, under the same id.")
        return redirect(visit.url("notification-delivery", delivery.public_id))
    contents = delivery.contents.select_related("event").order_by("event__at", "event_id")
    return visit.page(
        "console/notifications/delivery.html", section="settings", tab="notifications",
        delivery=delivery, rule=delivery.rule, tries=delivery.tries.order_by("n", "id"), open=OPEN,
        contents=[{"event": one.event, "says": sentence(one.event)} for one in contents],
    )  # fmt: skip
