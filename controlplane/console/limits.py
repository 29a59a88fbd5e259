"""Limits: each quota with what is used of it now, where the workspace lives, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from cells.domain.workflow.durations import parse_duration
from controlplane.console.acting import Form, done
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import Refused
from controlplane.tenants.actions.tenants import update_tenant
from controlplane.topology.use import QuotaUse, live_use

_DEADLINE = "compensation_deadline_seconds"

#: quota → what it is called
WORDS = {
    "job_runs_per_second": "Runs a second",
    "workflow_steps_per_second": "Workflow steps a second",
    "strict_jobs_per_second": "Jobs without a window, a second",
    "pending_timers": "Waiting timers",
    "running_runs": "Runs at the same time",
    "api_requests_per_second": "API requests a second",
}
POLICIES = {
    "HOME_ASYNC": "Kept in the home region, copied to others in the background.",
    "STRICT": "Confirmed only once a second region has it.",
    "SINGLE_REGION": "Kept in the home region alone; no copy leaves it.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """One quota and its use, as a row of the page."""

    use: QuotaUse
    words: str
    over: str
    href: str

    @property
    def shown(self) -> str:
        used = self.use.used
        if used is None:
            return "not known"
        text = f"{used:,.1f}".rstrip("0").rstrip(".") if used % 1 else f"{int(used):,}"
        return text.replace(",", "\u202f") + (" or more" if self.use.at_least else "")


@tenant_page(Scope.JOBS_READ, "GET", "POST")
def limits(visit: Visit) -> HttpResponse:
    """GET …/settings/limits is for everybody; POST sets for how long workflows may undo, for admins."""
    seconds = visit.tenant.compensation_deadline_seconds
    form = Form(values={_DEADLINE: duration_text(seconds)})
    if visit.request.method == "POST":
        if not visit.may_administer:
            raise PermissionDenied
        form = _deadline_set(visit, visit.request.POST.get(_DEADLINE, "").strip())
        if not form.faults and not form.general:
            return redirect(visit.url("limits") + "#policy-title")
    uses, away = live_use(visit.tenant)
    behind = {
        "job_runs_per_second": visit.url("runs"),
        "strict_jobs_per_second": visit.url("herd"),
        "running_runs": visit.url("runs") + "?state=RUNNING",
        "pending_timers": visit.url("jobs") + "?state=SCHEDULED",
        "api_requests_per_second": visit.url("usage"),
    }
    shown = [
        Limit(use=use, words=WORDS[use.name], over=use.over_means, href=behind.get(use.name, ""))
        for use in uses
    ]
    return visit.page(
        "console/settings/limits.html", section="settings", tab="limits", limits=shown, away=away,
        placement=getattr(visit.tenant, "placement", None), policies=POLICIES,
        policy=POLICIES[visit.tenant.default_region_policy], form=form,
        status=422 if form.faults or form.general else 200,
    )  # fmt: skip


def duration_text(seconds: int) -> str:
    """As definitions write it: `1d`, `36h`, `90s`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _deadline_set(visit: Visit, text: str) -> Form:
    form = Form(values={_DEADLINE: text})
    before = visit.tenant.compensation_deadline_seconds
    try:
        ms = parse_duration(int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text)
        if ms % 1000:
            raise ValueError("whole seconds, at least one")
        tenant = update_tenant(
            tenant_id=visit.tenant.id, compensation_deadline_seconds=ms // 1000, actor=visit.actor, reason=""
        )
    except ValueError as fault:
        form.faults[_DEADLINE] = [str(fault)]
    except Refused as refused:
        return Form.refused(form.values, refused, fields=(_DEADLINE,))
    else:
        after = duration_text(tenant.compensation_deadline_seconds)
        done(
            visit, "Workflows may undo for {}, after {} until now, where their definition says nothing else.",
            after, duration_text(before), link=(f"{visit.url('audit')}?action=tenant.", "In the audit log"),
        )  # fmt: skip
    return form
