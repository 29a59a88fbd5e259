"""What regions brought back that had been lost: the report of every cell, and each tenant's file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect

from controlplane.adminsite import operator
from controlplane.identity import TENANT, decode
from controlplane.operators.pages import operator_page, page
from controlplane.operators.reads import record_read
from controlplane.tenants.models import Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, CellState

_PAGE = 200
#: Outcomes after which somebody may want to do something.
_OPEN = frozenset({"CHANGED_SINCE", "UNCONFIRMED", "NOT_APPLIED", "REFUSED", "WAITING"})


@dataclass(kw_only=True)
class Concerned:
    """A tenant's entries in one cell, from one region."""

    tenant: Tenant | None
    tenant_id: str
    region: str
    effects: int = 0
    repeated: int = 0
    intents: int = 0
    open: int = 0


@dataclass(kw_only=True)
class Came:
    """What came back to one cell."""

    cell: str
    away: str = ""
    returns: list[dict[str, Any]] = field(default_factory=list)
    tenants: list[Concerned] = field(default_factory=list)


@operator_page()
def return_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/returns/ asks every cell."""
    cells = Cell.objects.exclude(state=CellState.RETIRED).order_by("region", "name")
    return page(request, "returns.html", "Regions that came back", cells=[_came(cell) for cell in cells])


@operator_page()
def return_file(request: HttpRequest, slug: str) -> HttpResponse | StreamingHttpResponse:
    """GET /admin/pages/returns/<slug>.jsonl: a tenant's report as JSON Lines."""
    tenant = get_object_or_404(Tenant.objects.select_related("placement__cell"), slug=slug)
    record_read(tenant_id=tenant.id, actor=operator(request), what=request.path)
    lines = _lines(tenant)
    try:
        first = next(lines, b"")
    except CellUnreachable as away:
        messages.error(request, f"The cell does not answer: {away}")
        return redirect("operators:returns")
    answer = StreamingHttpResponse(_behind(first, lines), content_type="application/jsonl")
    answer["Content-Disposition"] = f'attachment; filename="reconciliation-{tenant.slug}.jsonl"'
    return answer


def _behind(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _lines(tenant: Tenant) -> Iterator[bytes]:
    placement = getattr(tenant, "placement", None)
    cursor: str | None = None
    while placement is not None:
        asked = {"limit": _PAGE, **({"cursor": cursor} if cursor else {})}
        path = f"/internal/tenants/{tenant.public_id}/reconciliation?{urlencode(asked)}"
        told = call_cell(placement.cell, "GET", path, timeout=20.0)
        yield b"".join(msgspec.json.encode(item) + b"\n" for item in told["items"])
        cursor = told["next_cursor"]
        if cursor is None:
            return


def _came(cell: Cell) -> Came:
    came = Came(cell=cell.name)
    try:
        told = call_cell(cell, "GET", "/internal/returns")
    except CellUnreachable as away:
        came.away = str(away)
        return came
    came.returns = told["items"]
    by_tenant: dict[tuple[str, str], Concerned] = {}
    for each in told["tenants"]:
        key = (each["tenant_id"], each["region"])
        one = by_tenant.setdefault(
            key, Concerned(tenant=None, tenant_id=each["tenant_id"], region=each["region"])
        )
        if each["kind"] == "INTENT":
            one.intents += each["entries"]
            one.open += each["entries"] if each["outcome"] in _OPEN else 0
        else:
            one.effects += each["entries"]
            one.repeated += each["entries"] if each["outcome"] == "REPEATED" else 0
    ids = [decode(TENANT, tenant) for tenant, _ in by_tenant]
    known = {tenant.public_id: tenant for tenant in Tenant.objects.filter(pk__in=ids)}
    for one in by_tenant.values():
        one.tenant = known.get(one.tenant_id)
    came.tenants = list(by_tenant.values())
    return came
