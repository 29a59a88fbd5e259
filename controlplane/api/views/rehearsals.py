"""/v1/admin/rehearsals: a region is cut off on purpose, and what became of every run is counted."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ReasonMixin, Text
from controlplane.api.documents import Document, page_of
from controlplane.api.forms import WholeNumber
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.views.relocations import OperatorsView
from controlplane.errors import Conflicting, NotFound, invalid
from controlplane.identity import decode
from controlplane.rehearsals.actions import plan_rehearsal, start_rehearsal
from controlplane.rehearsals.models import REHEARSAL, Rehearsal
from controlplane.rehearsals.report import as_csv, sums_of

_FORMATS = ("json", "csv")


class NewRehearsal(ReasonMixin):
    """Which region is cut off, from which cells' other sites (left out: all that have some), for how long."""

    region = Text(max_length=63)
    cells = serializers.ListField(child=Text(max_length=63), required=False, default=list, max_length=1_000)
    seconds = WholeNumber(required=False, default=120, help_text="the cut ends by itself after so long")


class RehearsedPlanDocument(Document):
    """A cell that would take part. `refusal`: why it cannot."""

    cell = serializers.CharField()
    epoch = serializers.IntegerField()
    tenants = serializers.IntegerField()
    standbys = serializers.ListField(child=serializers.CharField())
    behind_bytes = serializers.IntegerField(allow_null=True)
    refusal = serializers.CharField(allow_null=True)


class RehearsalPlanDocument(Document):
    """What would be cut off. `refusal`: why it cannot be begun now."""

    region = serializers.CharField()
    cells = RehearsedPlanDocument(many=True)
    refusal = serializers.CharField(allow_null=True)


class RehearsalDocument(Document):
    """A rehearsal. `until`: when the cut ends (or ended) by itself."""

    rehearsal_id = serializers.CharField(source="public_id")
    region = serializers.CharField(source="region_id")
    state = serializers.CharField()
    why = serializers.CharField()
    seconds = serializers.IntegerField()
    cut_at = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    started_by = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class RepeatedDocument(Document):
    """A run whose target may have heard of it twice, under this one key."""

    tenant_id = serializers.CharField()
    run_id = serializers.CharField()
    state = serializers.CharField()
    lost = serializers.IntegerField()


class RehearsalLineDocument(Document):
    """What a rehearsal proved of one cell. Seconds count from the cut on; null: it was not seen. `rpo_…`: how
    much older the new owner's newest commit was than the newest of the region that was cut off."""

    cell = serializers.CharField()
    cut_region = serializers.CharField()
    owner_after = serializers.CharField(allow_null=True)
    due = serializers.IntegerField(allow_null=True)
    began = serializers.IntegerField(allow_null=True)
    run_once = serializers.IntegerField(allow_null=True)
    late_p50_ms = serializers.IntegerField(allow_null=True)
    late_p99_ms = serializers.IntegerField(allow_null=True)
    late_max_ms = serializers.IntegerField(allow_null=True)
    repeated = serializers.IntegerField(allow_null=True)
    refused_by_epoch = serializers.IntegerField(allow_null=True)
    rpo_seconds = serializers.FloatField(allow_null=True)
    rpo_bytes = serializers.IntegerField(allow_null=True)
    rto_owner_seconds = serializers.FloatField(allow_null=True)
    rto_first_run_seconds = serializers.FloatField(allow_null=True)
    let_go_seconds = serializers.FloatField(allow_null=True)
    returned_as = serializers.CharField(allow_null=True)
    repeats = RepeatedDocument(many=True)


class RehearsalReportDocument(Document):
    """The report: a line for each cell, and all together (sums of what is counted, the worst of what is
    timed)."""

    rehearsal = RehearsalDocument()
    cells = RehearsalLineDocument(many=True)
    together = serializers.JSONField()


def _show(found: Rehearsal) -> dict[str, Any]:
    return dict(RehearsalDocument(found).data)


def report_document(found: Rehearsal) -> dict[str, Any]:
    """The report as JSON; `Conflicting` while there is none."""
    lines = lines_of(found)
    document = {"rehearsal": found, "cells": lines, "together": sums_of(lines)}
    return dict(RehearsalReportDocument(document).data)


def lines_of(found: Rehearsal) -> list[dict[str, Any]]:
    """A line for each cell; `Conflicting` while they are not there."""
    reports = list(found.cells.order_by("cell").values_list("report", flat=True))
    if not reports or any(report is None for report in reports):
        raise Conflicting(f"there is no report: the rehearsal is {found.state}: {found.why}")
    return [report for report in reports if report is not None]


def found_rehearsal(text: str) -> Rehearsal:
    """By its id."""
    uuid = decode(REHEARSAL, text)
    found = None if uuid is None else Rehearsal.objects.filter(pk=uuid).first()
    if found is None:
        raise NotFound("no such rehearsal")
    return found


def csv_answer(found: Rehearsal) -> HttpResponse:
    """The report as a file."""
    name = f'attachment; filename="{found.public_id}.csv"'
    return HttpResponse(
        as_csv(lines_of(found)), content_type="text/csv; charset=utf-8", headers={"Content-Disposition": name}
    )


class RehearsalsView(OperatorsView):
    parameters = frozenset({"limit", "cursor", "region", "state"})
    idempotent_post = True

    @extend_schema(operation_id="list_rehearsals", responses=page_of(RehearsalDocument))
    def get(self, request: Request) -> Response:
        """Rehearsals, the newest first."""
        found = Rehearsal.objects.all()
        for name in ("region", "state"):
            if (value := request.query_params.get(name)) is not None:
                found = found.filter(**{name: value})
        return keyset_page(request, found, ["created_at", "id"], _show, newest_first=True)

    @extend_schema(operation_id="start_rehearsal", request=NewRehearsal, responses={202: RehearsalDocument})
    def post(self, request: Request) -> Response:
        """Cuts a region off from its cells' other sites for so long: its lease ends, another takes over, and
        what became of every run is counted. Refused where a standby is missing; the cut ends by itself."""
        form = self.read(NewRehearsal)

        def create() -> Response:
            made = start_rehearsal(**form, actor=self.actor)
            return Response(_show(made), 202, headers={"Location": f"/v1/admin/rehearsals/{made.public_id}"})

        return once(request, create)


class RehearsalPlanView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"region", "cells"})

    @extend_schema(
        operation_id="plan_rehearsal",
        parameters=[
            OpenApiParameter("region", str, required=True),
            OpenApiParameter("cells", str, description="Behind commas; all that it owns, if absent."),
        ],
        responses=RehearsalPlanDocument,
    )
    def get(self, request: Request) -> Response:
        """What a cut would touch, and whether it may be begun now. Cuts nothing."""
        region = request.query_params.get("region")
        if region is None:
            raise invalid("/region", "name a region")
        cells = [name for name in request.query_params.get("cells", "").split(",") if name]
        return Response(RehearsalPlanDocument(plan_rehearsal(region=region, cells=cells)).data)


class RehearsalView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_rehearsal", responses=RehearsalDocument)
    def get(self, request: Request, rehearsal: str) -> Response:
        """One rehearsal, and what it does now."""
        return Response(_show(found_rehearsal(rehearsal)))


class RehearsalReportView(OperatorsView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"format"})

    @extend_schema(
        operation_id="get_rehearsal_report",
        parameters=[OpenApiParameter("format", str, enum=_FORMATS, description="json, if absent.")],
        responses={
            (200, "application/json"): RehearsalReportDocument,
            (200, "text/csv"): OpenApiTypes.STR,
            409: None,
        },
    )
    def get(self, request: Request, rehearsal: str) -> Response | HttpResponse:
        """What it proved: due, run once, late, repeated (with keys), refused by epoch, RPO and RTO."""
        wanted = request.query_params.get("format", "json")
        if wanted not in _FORMATS:
            raise invalid("/format", f"one of {', '.join(_FORMATS)}")
        found = found_rehearsal(rehearsal)
        return csv_answer(found) if wanted == "csv" else Response(report_document(found))
