"""What a tenant uses of each quota right now: one place for the API and the console.

The cell counts what it holds; requests are the routers' newest sealed minute, and workflow steps the
cell's. What cannot be known now is None, never a guess: a minute without a record is nought only while
the meters of whoever counts do arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from billing.live import latest_minute, received_by_cell
from cells.contract import Metric
from controlplane.signatures import ROUTER_KID
from controlplane.tenants.models import Quota, Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Placement

#: quota → what its use is measured over.
MEASURED = {
    "job_runs_per_second": "the busiest of the last five minutes",
    "workflow_steps_per_second": "the newest minute within the last hour",
    "strict_jobs_per_second": "the busiest second of the coming day",
    "pending_timers": "now",
    "running_runs": "now",
    "api_requests_per_second": "the newest minute within the last hour",
}
#: quota → (DELAYED or REFUSED, what that is in words, who sees to it). Nothing is ever dropped.
OVER = {
    "job_runs_per_second": (
        "DELAYED",
        "runs wait for their turn",
        "the cell's release gate, CRITICAL first",
    ),
    "workflow_steps_per_second": ("DELAYED", "steps wait for their turn", "the cell's workflow engine"),
    "strict_jobs_per_second": (
        "REFUSED",
        "such a job is refused, with the next free instant",
        "the cell, as it is created or changed",
    ),
    "pending_timers": ("REFUSED", "new jobs are refused", "the cell, as it is created or changed"),
    "running_runs": ("DELAYED", "runs wait for their turn", "the cell's release gate, polls and parked work"),
    "api_requests_per_second": (
        "REFUSED",
        "requests are refused with 429 and Retry-After",
        "the routers, together",
    ),
}
#: Counted by the cell to one beyond the quota.
_BOUNDED = frozenset({"pending_timers", "running_runs"})
_PER_MINUTE = {
    "workflow_steps_per_second": Metric.WORKFLOW_STEPS,
    "api_requests_per_second": Metric.API_REQUESTS,
}
#: A page waits no longer for a cell, however it hangs (seconds).
_PATIENCE_S = 1.0
#: Meters that have not come for so long are missing; a minute is shipped within one.
_OVERDUE = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaUse:
    """One quota and its use."""

    name: str
    quota: int
    used: float | None  # None: not known now
    measured: str
    unknown_since: datetime | None = None  # when the meters came last that would say it

    @property
    def at_least(self) -> bool:
        """Whether more is used than was counted."""
        return self.used is not None and self.name in _BOUNDED and self.used > self.quota

    @property
    def over(self) -> str:
        """What happens beyond it: work is DELAYED, or REFUSED (429; 409 for jobs without a window)."""
        return OVER[self.name][0]

    @property
    def over_means(self) -> str:
        """The same in words."""
        return OVER[self.name][1]

    @property
    def enforced_by(self) -> str:
        """Who sees to it."""
        return OVER[self.name][2]

    @property
    def share(self) -> float | None:
        """Percent of the quota, at most 100."""
        if self.used is None or not self.quota:
            return None
        return round(min(100.0, self.used / self.quota * 100), 2)


def live_use(tenant: Tenant) -> tuple[list[QuotaUse], str]:
    """The use of every quota, and why the cell could not be asked (empty: it was)."""
    counted: Mapping[str, Any] = {}
    away = ""
    placement = Placement.objects.select_related("cell").filter(tenant=tenant).first()
    if placement is None:
        away = "The workspace is not placed yet."
    else:
        try:
            counted = call_cell(
                placement.cell, "GET", f"/internal/tenants/{tenant.public_id}/use", timeout=_PATIENCE_S
            )
        except CellUnreachable:
            away = "The cell does not answer; jobs it holds are safe."
    used: dict[str, float | None] = {name: counted.get(name) for name in Quota.NAMES}
    since: dict[str, datetime] = {}
    received = received_by_cell()
    for name, metric in _PER_MINUTE.items():
        quantity = latest_minute(tenant.id, metric)
        used[name] = None if quantity is None else quantity / 60
        sender = ROUTER_KID if metric is Metric.API_REQUESTS else placement and placement.cell_id
        came = received.get(sender or "")
        if quantity is not None or came is None:
            continue
        if timezone.now() - came < _OVERDUE:
            used[name] = 0.0  # whoever counts is heard, and counted nothing
        else:
            since[name] = came
    return [
        QuotaUse(
            name=name,
            quota=getattr(tenant.quota, name),
            used=used[name],
            measured=MEASURED[name],
            unknown_since=since.get(name),
        )
        for name in Quota.NAMES
    ], away
