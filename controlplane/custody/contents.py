"""What an export holds: one kind after the other, each page by page in the order of its keys."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model, Q, QuerySet

from billing.invoices.models import Invoice
from billing.models import UsageDay
from cells.contract import Caller, Scope
from controlplane.api.documents import show_event, show_key, show_member, show_tenant
from controlplane.api.invoice_documents import show_one_invoice
from controlplane.api.notification_documents import show_rule
from controlplane.console.cells_client import CellClient, NotDone, path
from controlplane.events.models import AuditEvent
from controlplane.notifications.models import NotificationRule
from controlplane.tenants.models import ApiKey, Membership, Tenant
from controlplane.topology.cell_keys import open_cell_key
from controlplane.topology.models import Placement, Site

#: Rows of a page.
PAGE = 200
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Some rows, and where to go on; no cursor: that was all."""

    rows: Sequence[Row]
    cursor: str


Reader = Callable[[uuid.UUID, str], Page]
#: Called amid a page that takes long: whoever reads says that it lives, and learns whether it still may.
still_there: ContextVar[Callable[[], None]] = ContextVar("still_there", default=lambda: None)
#: Documents asked for between two such calls.
_SOME = 20


def cell_of(tenant_id: uuid.UUID) -> CellClient:
    """The cell where the tenant lives now, spoken to with all rights inside the tenant."""
    placement = Placement.objects.select_related("cell", "tenant").filter(tenant=tenant_id).first()
    url = (
        None
        if placement is None
        else Site.objects.filter(cell=placement.cell, primary=True).values_list("url", flat=True).first()
    )
    if placement is None or url is None:
        raise NotDone("the tenant has no cell at the moment")
    cell = placement.cell
    return CellClient(
        base_url=url.rstrip("/"),
        cell=cell.name,
        secret=open_cell_key(cell.name, bytes(cell.sealed_key)),
        caller=Caller(
            tenant_id=placement.tenant.public_id,
            actor="service:tenant-export",
            scopes=(Scope.ADMIN.value,),
            epoch=max(placement.epoch, cell.ownership_epoch),
        ),
    )


def _of_cell(segment: str, *, one: Callable[[Row], str] | None = None, paged: bool = True) -> Reader:
    """A list of the cell; `one` names the path of each item's whole document. Not `paged`: it comes whole."""

    def read(tenant_id: uuid.UUID, cursor: str) -> Page:
        client = cell_of(tenant_id)
        asked = {"limit": PAGE, "cursor": cursor} if paged else {}
        found = client.get(f"/v1/{segment}", **asked)
        rows = found["items"]
        if one is not None:
            whole: dict[str, Any] = {}
            for start in range(0, len(rows), _SOME):
                still_there.get()()
                whole |= client.get_many(one(item) for item in rows[start : start + _SOME])
            # What is gone meanwhile is left out.
            rows = [whole[one(item)] for item in rows if one(item) in whole]
        return Page(rows=rows, cursor=found.get("next_cursor") or "")

    return read


def _histories(tenant_id: uuid.UUID, cursor: str) -> Page:
    """An execution with its whole history: one at a time is in memory."""
    client = cell_of(tenant_id)
    found = client.get("/v1/workflows", limit=1, cursor=cursor)
    rows = [
        {"workflow_id": item["workflow_id"], "run_id": item["run_id"], "events": list(_events(client, item))}
        for item in found["items"]
    ]
    return Page(rows=rows, cursor=found["next_cursor"] or "")


def _events(client: CellClient, item: Row) -> Iterator[Row]:
    after: int | None = 0
    while after is not None:
        still_there.get()()
        asked = {"run_id": item["run_id"], "after": after or None, "limit": 1000}
        found = client.get(path("workflows", item["workflow_id"], "history"), **asked)
        yield from found["items"]
        after = found["next_after"]


def _of_rows(rows: Callable[[uuid.UUID], QuerySet[Any]], show: Callable[[Any], Row]) -> Reader:
    """Rows of the control plane's database in the order of their ids."""

    def read(tenant_id: uuid.UUID, cursor: str) -> Page:
        found: list[Model] = list(
            rows(tenant_id).filter(Q(pk__gt=cursor) if cursor else Q()).order_by("pk")[: PAGE + 1]
        )
        more, found = len(found) > PAGE, found[:PAGE]
        return Page(rows=[show(row) for row in found], cursor=str(found[-1].pk) if more else "")

    return read


def _tenant(tenant_id: uuid.UUID, cursor: str) -> Page:
    tenant = Tenant.objects.select_related("quota", "placement__cell").get(pk=tenant_id)
    return Page(rows=[show_tenant(tenant)], cursor="")


def _show_usage(day: UsageDay) -> Row:
    return {
        "day": day.day, "metric": day.metric, "region_policy": day.region_policy, "cell": day.cell,
        "quantity": day.quantity,
    }  # fmt: skip


#: The kinds, in the order in which they are written.
KINDS: tuple[tuple[str, Reader], ...] = (
    ("tenant", _tenant),
    ("members", _of_rows(lambda t: Membership.objects.select_related("user").filter(tenant=t), show_member)),
    ("api_keys", _of_rows(lambda t: ApiKey.objects.filter(tenant=t), show_key)),
    ("notification_rules", _of_rows(lambda t: NotificationRule.objects.filter(tenant=t), show_rule)),
    ("targets", _of_cell("targets")),
    ("calendars", _of_cell("calendars", one=lambda item: path("calendars", item["calendar_id"]))),
    ("task_queues", _of_cell("task-queues", paged=False)),
    ("jobs", _of_cell("jobs", one=lambda item: path("jobs", item["job_id"]))),
    ("runs", _of_cell("runs")),
    ("dead_letters", _of_cell("dlq")),
    (
        "workflow_definitions",
        _of_cell(
            "workflow-definitions",
            one=lambda i: path("workflow-definitions", i["name"], "versions", str(i["version"])),
        ),
    ),
    ("workflows", _of_cell("workflows")),
    ("workflow_histories", _histories),
    ("usage", _of_rows(lambda t: UsageDay.objects.filter(tenant_id=t), _show_usage)),
    ("invoices", _of_rows(lambda t: Invoice.objects.filter(tenant_id=t), show_one_invoice)),
    ("audit_log", _of_rows(lambda t: AuditEvent.objects.filter(tenant_id=t), show_event)),
)


def plain(value: object) -> str:
    """What JSON has no word for."""
    return value.isoformat() if isinstance(value, datetime) or hasattr(value, "isoformat") else str(value)
