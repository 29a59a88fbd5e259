"""The workspace's own settings, and what operators may see while they help."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import Form, ask, done, not_done
from controlplane.console.limits import Limit
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import Refused
from controlplane.operators.support import GRANT_HOURS, grant_payloads, payload_grant
from controlplane.tenants.actions.accounts import THEMES
from controlplane.tenants.actions.tenants import pause_work, resume_work
from controlplane.topology.use import live_use
from controlplane.workspace.actions import set_workspace

_FIELDS = ("display_name", "timezone", "theme")


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """Names of time zones, for suggestions."""
    return tuple(sorted(name for name in available_timezones() if not name.startswith(("Etc/", "System"))))


@tenant_page(Scope.JOBS_READ, "GET", "POST")
def workspace_settings(visit: Visit) -> HttpResponse:
    """GET …/settings/ is for everybody; POST for admins."""
    settings = visit.workspace
    form = Form(values={name: getattr(settings, name) for name in _FIELDS})
    if visit.request.method == "POST":
        if not visit.may_administer:
            raise PermissionDenied
        values = {name: visit.request.POST.get(name, "").strip() for name in _FIELDS}
        try:
            set_workspace(tenant_id=visit.tenant.id, **values, actor=visit.actor, reason="")
        except Refused as refused:
            form = Form.refused(values, refused, fields=_FIELDS)
        else:
            done(
                visit, "The workspace's settings are saved.",
                link=(f"{visit.url('audit')}?action=workspace.", "In the audit log"),
            )  # fmt: skip
            return redirect(visit.url("settings"))
    return visit.page(
        "console/settings/workspace.html",
        status=422 if form.faults or form.general else 200,
        section="settings",
        tab="workspace",
        form=form,
        zones=zones(),
        themes=THEMES,
        grant=payload_grant(visit.tenant.id),
        grant_hours=GRANT_HOURS,
    )


@tenant_page(Scope.ADMIN, "POST")
def support_grant(visit: Visit) -> HttpResponse:
    """POST …/settings/support: how long visiting operators may see payloads; 0 ends it."""
    text = visit.request.POST.get("hours", "")
    hours = int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else -1
    try:
        grant = grant_payloads(tenant_id=visit.tenant.id, hours=hours, actor=visit.actor, reason="")
    except Refused as refused:
        not_done(visit, refused)
    else:
        if hours:
            until = f"{grant.until.astimezone(visit.zone):%a %d %b, %H:%M}"
            done(visit, "Clockhouse operators who visit may see payloads until {}.", until)
        else:
            done(visit, "Clockhouse operators may not see payloads any more.")
    return redirect(visit.url("settings"))


def _held(visit: Visit) -> list[str]:
    """What a pause holds and what it does not, in numbers."""
    uses, away = live_use(visit.tenant)
    shown = {use.name: Limit(use=use, words="", over="", href="").shown for use in uses}
    return [
        *([f"{away} The numbers are not known now."] if away else []),
        f"Scheduled jobs and retries: {shown['pending_timers']}. None of them begins until work is resumed.",
        f"Runs under way: {shown['running_runs']}. They end; no further one begins.",
        "When work is resumed, what was due meanwhile follows each job’s misfire policy.",
    ]


@tenant_page(Scope.ADMIN, "GET", "POST")
def work(visit: Visit) -> HttpResponse:
    """GET …/settings/work says what pausing holds; POST pauses all work of the workspace, or resumes it."""
    if visit.request.method == "GET":
        if visit.tenant.paused_at:
            return redirect(visit.url("settings") + "#work-title")
        return ask(
            visit, title="Pause all work", points=_held(visit), verb="Pause all work", act="pause",
            back=visit.url("settings"), keep="Keep it running", tab="workspace",
        )  # fmt: skip
    posted = visit.request.POST
    act = {"pause": pause_work, "resume": resume_work}.get(posted.get("verb", ""))
    if act is None:
        raise Http404
    reason = posted.get("reason", "").strip()[:200]
    try:
        act(tenant_id=visit.tenant.id, actor=visit.actor, reason=reason)
    except Refused as refused:
        not_done(visit, refused)
    else:
        text = "All work is paused: nothing begins." if act is pause_work else "Work begins again."
        done(visit, text, link=(f"{visit.url('audit')}?action=tenant.", "In the audit log"))
    return redirect(visit.url("settings") + "#work-title")
