"""Limits: each quota with what is used of it now, where the workspace lives, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpResponse

from billing.live import latest_minute
from cells.contract import Metric, Scope
from controlplane.console.cells_client import CellAway
from controlplane.console.visit import Visit, tenant_page
from controlplane.tenants.models import Quota

_MOST_COUNTED = 200
#: quota → (what it is called, what happens over it)
WORDS = {
    "job_runs_per_second": ("Runs a second", "runs wait for their turn"),
    "workflow_steps_per_second": ("Workflow steps a second", "steps wait for their turn"),
    "strict_jobs_per_second": (
        "Jobs without a window, a second",
        "such a job is refused, with the next free instant",
    ),
    "pending_timers": ("Waiting timers", "new jobs are refused"),
    "running_runs": ("Runs at the same time", "runs wait for their turn"),
    "api_requests_per_second": ("API requests a second", "requests are refused with 429 and Retry-After"),
}
POLICIES = {
    "HOME_ASYNC": "Kept in the home region, copied to others in the background.",
    "STRICT": "Confirmed only once a second region has it.",
    "SINGLE_REGION": "Kept in the home region alone; no copy leaves it.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """One quota and its use."""

    name: str
    words: str
    over: str
    quota: int
    used: float | None  # None: not known
    at_least: bool  # more than we counted
    source: str  # of the use: what was looked at
    href: str = ""

    @property
    def share(self) -> float | None:
        """Percent of the quota, at most 100."""
        if self.used is None or not self.quota:
            return None
        return round(min(100.0, self.used / self.quota * 100), 2)

    @property
    def shown(self) -> str:
        if self.used is None:
            return "not known"
        text = f"{self.used:,.1f}".rstrip("0").rstrip(".") if self.used % 1 else f"{int(self.used):,}"
        return text.replace(",", "\u202f") + (" or more" if self.at_least else "")


@tenant_page(Scope.JOBS_READ)
def limits(visit: Visit) -> HttpResponse:
    """GET …/settings/limits"""
    away = ""
    try:
        runs_per_second, running, more = _from_cell(visit)
    except CellAway as e:
        away, runs_per_second, running, more = str(e), None, None, False
    timers = latest_minute(visit.tenant.id, Metric.PENDING_TIMER_MINUTES)
    requests = latest_minute(visit.tenant.id, Metric.API_REQUESTS)
    quota: Quota = visit.tenant.quota
    used: dict[str, tuple[float | None, str, str]] = {
        "job_runs_per_second": (runs_per_second, "the busiest of the last five minutes", visit.url("runs")),
        "running_runs": (running, "now", visit.url("runs") + "?state=RUNNING"),
        "pending_timers": (timers, "when they were last counted", visit.url("jobs") + "?state=SCHEDULED"),
        "api_requests_per_second": (
            None if requests is None else requests / 60,
            "over the last minute with requests",
            visit.url("usage"),
        ),
    }  # fmt: skip
    shown = [
        Limit(
            name=name, words=WORDS[name][0], over=WORDS[name][1], quota=getattr(quota, name),
            used=used.get(name, (None, "", ""))[0], at_least=name == "running_runs" and more,
            source=used.get(name, (None, "", ""))[1], href=used.get(name, (None, "", ""))[2],
        )
        for name in Quota.NAMES
    ]  # fmt: skip
    return visit.page(
        "console/settings/limits.html", section="settings", tab="limits", limits=shown, away=away,
        placement=getattr(visit.tenant, "placement", None), policies=POLICIES,
        policy=POLICIES[visit.tenant.default_region_policy],
    )  # fmt: skip


def _from_cell(visit: Visit) -> tuple[float, int, bool]:
    since = visit.now.replace(second=0, microsecond=0) - timedelta(minutes=5)
    stats = visit.cell.get("/v1/stats", since=f"{since:%Y-%m-%dT%H:%M:%SZ}")
    busiest = max((minute["started"] for minute in stats["minutes"]), default=0)
    running = visit.cell.get("/v1/runs", state="RUNNING", limit=_MOST_COUNTED)
    return busiest / 60, len(running["items"]), running["next_cursor"] is not None
