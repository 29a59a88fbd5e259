"""/v1/usage: what a tenant used, by day, metric, region policy or job, in keyset pages."""

from __future__ import annotations

import base64
import binascii
from datetime import date
from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from billing import grouping
from billing.api import Range, Report, fault, range_of, shown_range
from billing.cells import CellAway
from billing.grouping import By, Row

_USUAL_PAGE, _LARGEST_PAGE = 1_000, 5_000
#: By job, a page is shorter: a cell tells at most 1,000 jobs at once, and is asked for one more than shown.
_LARGEST_PAGE_OF_JOBS = 500


class CellsAway(APIException):
    """Cells that count by job did not answer."""

    status_code = 503

    def __init__(self, away: CellAway) -> None:
        names = ", ".join(away.cells)
        super().__init__(
            f"Usage by job is kept by cells, and {names} cannot be asked now. Try again shortly."
        )


class UsageItem(serializers.Serializer[Any]):
    """`day`, `region_policy` and `job_id` are null where the sums are not by them."""

    day = serializers.DateField(allow_null=True)
    job_id = serializers.CharField(allow_null=True)
    metric = serializers.CharField()
    region_policy = serializers.CharField(allow_null=True)
    quantity = serializers.IntegerField()


class UsageDocument(Range):
    by = serializers.ChoiceField(choices=[by.value for by in By])
    complete_until = serializers.DateTimeField(
        allow_null=True, help_text="By job: runs that ended before it are counted. Else null."
    )
    without_cells = serializers.ListField(
        child=serializers.CharField(),
        help_text="By job: cells that are gone, whose runs are not counted here. They are in all other sums.",
    )
    items = UsageItem(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class UsageView(Report):
    parameters = frozenset({"from", "to", "by", "limit", "cursor"})

    @extend_schema(
        operation_id="get_usage",
        responses=UsageDocument,
        parameters=[
            OpenApiParameter("by", str, enum=[by.value for by in By], default=By.DAY.value),
            OpenApiParameter("limit", int, default=_USUAL_PAGE),
            OpenApiParameter("cursor", str),
        ],
    )
    def get(self, request: Request) -> Response:
        """What was used: by day (each day's metrics and region policies), by metric, by region policy (of
        each metric), or by job (the runs of each job that ended)."""
        since, until = range_of(request)
        by, limit = self._by(request), self._limit(request)
        place = _place(request, by, since, until)
        tenant_id = self.tenant_of(request)
        complete_until = None
        without: tuple[str, ...] = ()
        if by is By.JOB:
            try:
                found = grouping.by_job(
                    tenant_id, since, until, after=place, limit=min(limit, _LARGEST_PAGE_OF_JOBS)
                )
            except CellAway as e:
                raise CellsAway(e) from e
            rows, more, complete_until = found.rows, found.more, found.complete_until
            without = found.without_cells
        else:
            rows = grouping.grouped(tenant_id, since, until, by=by, after=place, limit=limit + 1)
            more, rows = len(rows) > limit, rows[:limit]
        return Response(
            {
                **shown_range(since, until),
                "by": by.value,
                "complete_until": complete_until and f"{complete_until:%Y-%m-%dT%H:%M:%SZ}",
                "without_cells": list(without),
                "items": [_show(row) for row in rows],
                "next_cursor": _cursor(by, since, until, rows[-1]) if more else None,
            }
        )

    @staticmethod
    def _by(request: Request) -> By:
        try:
            return By(request.query_params.get("by", By.DAY.value))
        except ValueError as e:
            raise fault("by", f"one of {', '.join(By)}") from e

    @staticmethod
    def _limit(request: Request) -> int:
        text = request.query_params.get("limit", str(_USUAL_PAGE))
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _LARGEST_PAGE):
            raise fault("limit", f"a whole number from 1 to {_LARGEST_PAGE}")
        return int(text)


def _show(row: Row) -> dict[str, Any]:
    return {
        "day": row.day and row.day.isoformat(),
        "job_id": row.job_id,
        "metric": row.metric,
        "region_policy": row.region_policy,
        "quantity": row.quantity,
    }


def _cursor(by: By, since: date, until: date, row: Row) -> str:
    place = [by.value, since.isoformat(), until.isoformat(), *row.place]
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _place(request: Request, by: By, since: date, until: date) -> tuple[str, ...] | None:
    """Where the page before ended. A cursor belongs to its list: same grouping, same days."""
    text = request.query_params.get("cursor")
    if text is None:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        kind, first, last, *place = msgspec.json.decode(raw, type=list[str])
    except (binascii.Error, ValueError, msgspec.MsgspecError) as e:
        raise fault("cursor", "is not a cursor of this list") from e
    if (kind, first, last) != (by.value, since.isoformat(), until.isoformat()) or not grouping.fits(
        by, place
    ):
        raise fault("cursor", "belongs to another list or to other days")
    return tuple(place)
