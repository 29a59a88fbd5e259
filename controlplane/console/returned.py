"""What came back with a region that was lost: the reconciliation report, on a page and as a file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse

from cells.contract import Scope
from controlplane.console.cells_client import Refused
from controlplane.console.lists import next_page, sentences
from controlplane.console.visit import Visit, tenant_page

_SHOWN, _PAGE = 50, 200
#: How an entry that somebody should look at is marked.
_LOOKS = {
    "APPLIED": "good", "IMPORTED": "good", "ALREADY": "good", "REPEATED": "wait", "NOT_REPEATED": "mute",
    "WAITING": "live",
}  # fmt: skip
_COLUMNS = (
    *("region", "epoch", "at", "kind", "verb", "thing", "id", "idempotency_key", "region_policy", "state"),
    *("due_at", "claimed_at", "started_at", "finished_at", "outcome", "note", "here_state"),
)


@tenant_page(Scope.JOBS_READ)
def returned(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/returned: oldest first."""
    cursor = visit.request.GET.get("cursor", "")
    context: dict[str, Any] = {"section": "overview", "items": [], "paged": bool(cursor)}
    try:
        found = visit.cell.get("/v1/regions/reconciliation", limit=_SHOWN, cursor=cursor)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/returned.html", status=422, **context)
    items = [{"it": item, "look": _LOOKS.get(item["outcome"], "bad")} for item in found["items"]]
    return visit.page(
        "console/returned.html",
        **{**context, "items": items, "next": next_page(visit, {}, found["next_cursor"])},
    )


@tenant_page(Scope.JOBS_READ)
def returned_file(visit: Visit) -> StreamingHttpResponse:
    """GET /t/<slug>/returned.csv: all of it. What the cell does not answer for is not a shorter file: the
    first page is read before anything is sent."""
    pages = _pages(visit)
    first = next(pages)
    answer = StreamingHttpResponse(_lines(first, pages), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="reconciliation-{visit.slug}.csv"'
    return answer


def _pages(visit: Visit) -> Iterator[list[dict[str, Any]]]:
    cursor = ""
    while True:
        found = visit.cell.get("/v1/regions/reconciliation", limit=_PAGE, cursor=cursor)
        yield found["items"]
        cursor = found["next_cursor"] or ""
        if not cursor:
            return


class _Line:
    """Takes what a csv writer writes and gives it back."""

    def write(self, text: str) -> str:
        return text


def _lines(first: list[dict[str, Any]], rest: Iterator[list[dict[str, Any]]]) -> Iterator[str]:
    table = csv.writer(_Line())
    yield table.writerow(_COLUMNS)
    for page in chain([first], rest):
        yield from (table.writerow(_row(item)) for item in page)


def _row(item: Mapping[str, Any]) -> list[Any]:
    flat = {**item, **(item.get("times") or {}), "here_state": (item.get("here") or {}).get("state")}
    return [_harmless(flat.get(name)) for name in _COLUMNS]


def _harmless(value: Any) -> Any:
    """No cell begins a formula, whatever somebody called a thing."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
