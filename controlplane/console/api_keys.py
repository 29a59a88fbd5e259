"""API keys: list, create, rotate, revoke. A key's text is in the answer that made it, and nowhere else."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.actors import Actor
from controlplane.console.acting import Form, ask, done, first_use, not_done, not_used
from controlplane.console.audit import names_of
from controlplane.console.lists import PAGE, next_page
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import Refused, invalid
from controlplane.tenants.actions.api_keys import IssuedKey, create_api_key, revoke_api_key, rotate_api_key
from controlplane.tenants.models import ApiKey, Tenant

SCOPES = (
    (Scope.JOBS_READ, "read jobs, runs, dead letters and targets"),
    (Scope.JOBS_WRITE, "create, edit, pause and cancel jobs; register targets"),
    (Scope.JOBS_TRIGGER, "start a run by hand"),
    (Scope.WORKERS, "poll for work and complete it"),
    (Scope.WORKFLOWS_READ, "read workflows and definitions"),
    (Scope.WORKFLOWS_WRITE, "start, signal and cancel workflows"),
    (Scope.TARGETS_APPROVE, "approve targets and rotate their secrets"),
    (Scope.PAYLOADS_READ, "see payloads and answer bodies"),
    (Scope.USAGE_READ, "read usage and cost"),
    (Scope.ADMIN, "everything above, and members, keys, settings"),
)
USUAL_SCOPES = (Scope.JOBS_READ, Scope.JOBS_WRITE, Scope.JOBS_TRIGGER)
EXPIRIES = (("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year"), ("", "never"))
GRACES = ((0, "at once"), (1, "in an hour"), (24, "in a day"), (168, "in a week"), (720, "in 30 days"))
_FIELDS = ("name", "scopes", "expires_at")
_EXPIRIES = dict(EXPIRIES)


def issue(
    tenant: Tenant, *, name: str, scopes: Iterable[str], expires_at: datetime | None, actor: Actor
) -> IssuedKey:
    """A new key of the tenant."""
    return create_api_key(
        tenant_id=tenant.id, name=name, scopes=list(scopes), expires_at=expires_at, actor=actor, reason=""
    )


@tenant_page(Scope.ADMIN)
def key_list(visit: Visit) -> HttpResponse:
    """GET …/settings/keys/"""
    ended = "ended" in visit.request.GET
    known = ApiKey.objects.filter(tenant=visit.tenant)
    over = Q(revoked_at__isnull=False) | Q(expires_at__lte=visit.now)
    wanted = known if ended else known.exclude(over)
    cursor = visit.request.GET.get("cursor", "")
    if cursor:
        last = known.filter(pk=cursor[:40]).first()
        if last is None:
            raise Http404
        wanted = wanted.filter(
            Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, id__lt=last.id)
        )
    keys = list(wanted.select_related("successor").order_by("-created_at", "-id")[: PAGE + 1])
    more, keys = len(keys) > PAGE, keys[:PAGE]
    return visit.page(
        "console/settings/keys.html", section="settings", tab="keys", ended=ended,
        gone=known.filter(over).count(),
        keys=[{"key": key, "state": _state(visit, key)} for key in keys],
        names=names_of(visit, (key.created_by for key in keys)),
        next=next_page(visit, {"ended": "1"} if ended else {}, keys[-1].id if more else None),
        paged=bool(cursor),
    )  # fmt: skip


def _state(visit: Visit, key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "REVOKED"
    if key.expires_at is not None and key.expires_at <= visit.now:
        return "EXPIRED"
    return "ROTATED" if key.successor_id else "LIVE"


@tenant_page(Scope.ADMIN, "GET", "POST")
def key_new(visit: Visit) -> HttpResponse:
    """GET shows the form; POST makes the key and shows it, once."""
    if visit.request.method == "GET":
        return _form(visit, Form(values={"scopes": list(USUAL_SCOPES), "expires": "90"}))
    post = visit.request.POST
    scopes = post.getlist("scopes")
    values = {"name": post.get("name", ""), "scopes": scopes, "expires": post.get("expires", "")}
    days = post.get("expires")
    if days not in _EXPIRIES:
        # Never is a choice somebody makes, not what is left when nothing is understood.
        offered = ", ".join(_EXPIRIES.values())
        return _form(visit, Form(values=values, faults={"expires_at": [f"choose one of: {offered}"]}), 422)
    expires_at = visit.now + timedelta(days=int(days)) if days else None
    if not first_use(visit.request, post.get("token", "")[:64]):
        return _again(visit)
    try:
        issued = issue(
            visit.tenant, name=values["name"], scopes=scopes, expires_at=expires_at, actor=visit.actor
        )
    except Refused as refused:
        return _form(visit, Form.refused(values, refused, fields=_FIELDS), 422)
    return _shown(visit, issued, "is made")


def _again(visit: Visit) -> HttpResponse:
    done(visit, "The key was made already. Its text is shown once; if you do not have it, rotate the key.")
    return redirect(visit.url("keys"))


def _form(visit: Visit, form: Form, status: int = 200) -> HttpResponse:
    return visit.page(
        "console/settings/key_new.html", status=status, section="settings", tab="keys", form=form,
        scopes=SCOPES, expiries=EXPIRIES, token=str(uuid.uuid4()),
    )  # fmt: skip


def _shown(visit: Visit, issued: IssuedKey, happened: str, **more: Any) -> HttpResponse:
    return visit.page(
        "console/settings/key.html", section="settings", tab="keys", key=issued.key, text=issued.text,
        happened=happened, api_url=settings.PUBLIC_API_URL, **more,
    )  # fmt: skip


@tenant_page(Scope.ADMIN, "GET", "POST")
def key_action(visit: Visit, key_id: str, verb: str) -> HttpResponse:
    """GET …/rotate, …/revoke says what it touches; POST does it."""
    key = ApiKey.objects.filter(tenant=visit.tenant, pk=key_id).first()
    if key is None or verb not in ("rotate", "revoke"):
        raise Http404
    if visit.request.method == "GET":
        return _ask(visit, key, verb)
    try:
        if verb == "revoke":
            revoke_api_key(tenant_id=visit.tenant.id, key_id=key.id, actor=visit.actor, reason="")
        else:
            return _rotate(visit, key)
    except Refused as refused:
        not_done(visit, refused)
    else:
        done(
            visit, "The key {} is revoked; requests with it are refused within five seconds.", key.name,
            link=(f"{visit.url('audit')}?subject={key.id}", "In the audit log"),
        )  # fmt: skip
    return redirect(visit.url("keys"))


def _rotate(visit: Visit, key: ApiKey) -> HttpResponse:
    asked = visit.request.POST.get("grace_hours", "24")
    if asked not in {str(value) for value, _ in GRACES}:
        raise invalid("/grace_hours", f"one of {', '.join(str(value) for value, _ in GRACES)}")
    hours = int(asked)
    token = visit.request.POST.get("token", "")[:64]
    if not first_use(visit.request, token):
        done(visit, "The key {} was rotated already. The new one’s text was shown once, then.", key.name)
        return redirect(visit.url("keys"))
    try:
        issued = rotate_api_key(
            tenant_id=visit.tenant.id, key_id=key.id, grace=timedelta(hours=hours), actor=visit.actor,
            reason="",
        )  # fmt: skip
    except Refused:
        not_used(visit.request, token)
        raise
    old = ApiKey.objects.get(pk=key.pk)
    return _shown(visit, issued, "has a successor", old=old)


def _ask(visit: Visit, key: ApiKey, verb: str) -> HttpResponse:
    used = key.last_used_at
    if used is None:
        use = "It was never used."
    else:
        minutes = int((visit.now - used).total_seconds() // 60)
        recent = "in use right now" if minutes < 5 else f"last used on {used:%-d %b %Y, %H:%M} UTC"
        use = f"It is {recent}." if minutes < 5 else f"It was {recent}."
    common = {"back": visit.url("keys"), "keep": "Keep it", "tab": "keys"}
    if verb == "rotate":
        return ask(
            visit,
            title=f"Rotate the key {key.name}",
            points=[
                use,
                f"A new key with the same {len(key.scopes)} scope(s) is made and shown once.",
                "The old one works until the time you choose, so nothing breaks while you replace it.",
            ],
            verb="Rotate",
            danger=False,
            graces=GRACES,
            token=str(uuid.uuid4()),
            **common,
        )
    return ask(
        visit,
        title=f"Revoke the key {key.name}",
        points=[
            use,
            "Every program that uses this 1 key is refused within five seconds. This cannot be undone.",
            "Jobs and targets made with it stay, and keep running.",
        ],
        verb="Revoke",
        **common,
    )
