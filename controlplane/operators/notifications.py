"""Notification rules of operators: they may hear of everything, of every tenant."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.errors import Invalid, NotFound, Refused
from controlplane.identity import decode
from controlplane.notifications import forms, rules
from controlplane.notifications.models import DELIVERY, RULE, Delivery, NotificationRule
from controlplane.operators.pages import act, operator_page, page
from controlplane.tenants.models import User

_NEWEST = 50


@operator_page("GET", "POST")
def rule_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/notifications/ shows rules and a form for a new one; POST makes it."""
    values, faults = forms.usual(), []
    if request.method == "POST":
        values = forms.typed(request.POST)
        try:
            made = rules.create_rule(
                tenant_id=None, wanted=forms.wanted(values), actor=operator(request), reason=""
            )
        except Invalid as refused:
            faults = [f"{fault.pointer.strip('/')}: {fault.detail}" for fault in refused.faults]
        except Refused as refused:
            faults = [str(refused)]
        else:
            return _made(request, made, "The rule is made")
    return page(
        request, "notifications.html", "Notifications", status=422 if faults else 200,
        rules=NotificationRule.objects.filter(tenant=None).order_by("id"), values=values, faults=faults,
        groups=forms.groups(operators=True), digests=forms.DIGESTS,
        people=User.objects.filter(is_staff=True, is_active=True).values_list("email", flat=True),
    )  # fmt: skip


def _rule(text: str) -> NotificationRule:
    try:
        return rules.find_rule(decode(RULE, text), tenant_id=None)
    except NotFound:
        raise Http404 from None


@operator_page()
def one_rule(request: HttpRequest, rule: str) -> HttpResponse:
    """GET /admin/pages/notifications/<id>/: the rule and its messages."""
    found = _rule(rule)
    return page(
        request, "notification.html", found.name, rule=found, digests=dict(forms.DIGESTS),
        deliveries=Delivery.objects.filter(rule=found).order_by("-id")[:_NEWEST],
    )  # fmt: skip


@operator_page("POST")
def rule_act(request: HttpRequest, rule: str, verb: str) -> HttpResponse:
    """POST …/test, …/enable, …/disable, …/rotate, …/remove"""
    found = _rule(rule)
    common: dict[str, Any] = {"tenant_id": None, "rule_id": found.id, "reason": ""}
    if verb == "remove":
        act(request, rules.remove_rule, f"The rule {found.name} is gone, and its messages.", **common)
        return redirect("operators:notifications")
    if verb == "test":
        act(request, rules.test_rule, "A test is on its way; it is the newest message below.", **common)
    elif verb in ("enable", "disable"):
        changes = {"enabled": verb == "enable"}
        act(request, rules.edit_rule, f"The rule is {verb}d.", changes=changes, **common)
    elif verb == "rotate":
        try:
            made = rules.rotate_secret(**common, actor=operator(request))
        except Refused as refused:
            messages.error(request, f"Nothing was changed: {refused}")
        else:
            return _made(request, made, "The secret is rotated")
    else:
        raise Http404
    return redirect("operators:notification", found.public_id)


def _made(request: HttpRequest, made: rules.Made, title: str) -> HttpResponse:
    """The page that shows a new secret, once: no cookie, no session and no cache ever has it."""
    if made.secret is None:
        return redirect("operators:notification", made.rule.public_id)
    answer = page(request, "notification_secret.html", title, rule=made.rule, secret=made.secret)
    answer["Cache-Control"] = "no-store"
    return answer


@operator_page("POST")
def redeliver(request: HttpRequest, delivery: str) -> HttpResponse:
    """POST /admin/pages/deliveries/<id>/redeliver"""
    try:
        found = rules.find_delivery(decode(DELIVERY, delivery), tenant_id=None)
    except NotFound:
        raise Http404 from None
    act(
        request, rules.redeliver, "It is on its way again, under the same id.",
        tenant_id=None, delivery_id=found.id, reason="",
    )  # fmt: skip
    return redirect("operators:notification", found.rule.public_id)
