"""Limits: each quota with what is used of it now, where the workspace lives, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.visit import Visit, tenant_page
from controlplane.topology.use import QuotaUse, live_use

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


@tenant_page(Scope.JOBS_READ)
def limits(visit: Visit) -> HttpResponse:
    """GET …/settings/limits"""
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
        policy=POLICIES[visit.tenant.default_region_policy],
    )  # fmt: skip
