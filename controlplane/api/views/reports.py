"""/v1/admin/reports: what operators ask of the cells' history, across tenants."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api import range_of, shown_range
from billing.exports import lake
from cells.contract import Scope
from controlplane.api.documents import Document
from controlplane.api.permissions import needs
from controlplane.api.problems import bad_parameter
from controlplane.api.views.operators import OperatorView
from controlplane.errors import NotFound

_USUAL = 100


class ReportDocument(Document):
    """`days`, `files` and `bytes` are what was read: days of cells, Parquet files, their size."""

    report = serializers.CharField()
    vars()["from"] = serializers.DateField()  # no name for a Python attribute
    to = serializers.DateField()
    items = serializers.ListField(child=serializers.DictField())
    days = serializers.IntegerField()
    files = serializers.IntegerField()
    bytes = serializers.IntegerField()


class ReportView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"from", "to", "limit"})

    @extend_schema(
        operation_id="get_report",
        responses={200: ReportDocument, 409: None},
        parameters=[
            OpenApiParameter("report", str, OpenApiParameter.PATH, enum=[r.value for r in lake.Report]),
            OpenApiParameter("limit", int, default=_USUAL),
        ],
    )
    def get(self, request: Request, report: str) -> Response:
        """Failed runs by region, cell and day; the busiest tenants; bytes kept of each tenant's runs. Of
        days that cells have written to their history: yesterday's is there within hours."""
        try:
            wanted = lake.Report(report)
        except ValueError as e:
            raise NotFound(f"no such report: there are {', '.join(lake.Report)}") from e
        since, until = range_of(request)
        if (until - since).days > lake.MOST_DAYS:
            raise bad_parameter("from", f"a report spans at most {lake.MOST_DAYS} days")
        try:
            found = lake.answer(wanted, since, until, limit=_limit(request))
        except lake.TooMuch as e:
            raise bad_parameter("from", str(e)) from e
        said: dict[str, Any] = {
            "report": wanted.value,
            **shown_range(since, until),
            "items": list(found.items),
            "days": found.days,
            "files": found.files,
            "bytes": found.bytes,
        }
        return Response(said)


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_USUAL))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= lake.MOST_ITEMS):
        raise bad_parameter("limit", f"a whole number from 1 to {lake.MOST_ITEMS}")
    return int(text)
