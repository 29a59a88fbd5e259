"""/v1/exports, /v1/export-schedules, and the operators' own below /v1/admin."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, ClassVar

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.exports import requesting
from billing.exports.machine import Cadence, Dataset, ExportState, Format
from billing.exports.models import Export, ExportSchedule
from billing.ids import EXPORT
from cells.contract import Scope
from controlplane.api.base import ApiView, tenant_or_404, with_etag
from controlplane.api.documents import page_of
from controlplane.api.downloads import download
from controlplane.api.export_documents import (
    ExportDocument,
    ExportScheduleDocument,
    ExportSchedulesDocument,
    NewExport,
    NewOperatorExport,
    OperatorExportDocument,
    SetExportSchedule,
    show_export,
    show_operator_export,
    show_schedule,
)
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.problems import bad_parameter
from controlplane.api.views.operators import OperatorView
from controlplane.api.views.price_books import named, tenant_in_body, today
from controlplane.errors import NotFound
from controlplane.tenants.models import tenant_uuid

#: A file of an export, or none yet.
FILE: dict[Any, Any] = {
    (200, "text/csv"): OpenApiTypes.BINARY,
    (200, "application/vnd.apache.parquet"): OpenApiTypes.BINARY,
    (200, "application/json"): OpenApiTypes.ANY,  # the manifest
    409: None,
}


def _states(request: Request) -> dict[str, Any]:
    state = request.query_params.get("state")
    if state is None:
        return {}
    if state not in list(ExportState):
        raise bad_parameter("state", f"one of {', '.join(ExportState)}")
    return {"state": state}


def _asked(form: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset": Dataset(form["dataset"]),
        "file_format": Format(form["format"]),
        "since": form["from"],
        "until": form["to"] + timedelta(days=1),
        "today": today(),
        "reason": form["reason"],
    }


class ExportsView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ, POST=Scope.USAGE_READ)
    parameters = frozenset({"limit", "cursor", "state"})
    idempotent_post = True

    @extend_schema(operation_id="list_exports", responses=page_of(ExportDocument))
    def get(self, request: Request) -> Response:
        """Your exports, newest first."""
        rows = Export.objects.filter(tenant_id=self.tenant_id, **_states(request))
        return keyset_page(request, rows, ["id"], show_export, newest_first=True)

    @extend_schema(operation_id="create_export", request=NewExport, responses={201: ExportDocument})
    def post(self, request: Request) -> Response:
        """Writes usage, invoice lines or FOCUS data of some days into files; follow it by its id."""
        form = self.read(NewExport)

        def create() -> Response:
            made = requesting.request_export(
                tenant_id=self.tenant_id, about_tenant_id=self.tenant_id, actor=self.actor, **_asked(form)
            )
            return Response(show_export(made), 201, headers={"Location": f"/v1/exports/{made.public_id}"})

        return once(request, create)


class ExportView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ)

    @extend_schema(operation_id="get_export", responses=ExportDocument)
    def get(self, request: Request, export_id: str) -> Response:
        """How far an export is; its files once it is done."""
        found = requesting.find_export(named(EXPORT, export_id, "export"), tenant_id=self.tenant_id)
        return Response(show_export(found))


class ExportFileView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ)

    @extend_schema(operation_id="get_export_file", responses=FILE)
    def get(self, request: Request, export_id: str, file_name: str) -> FileResponse:
        """A file of an export; its ETag is its SHA-256."""
        found = requesting.find_export(named(EXPORT, export_id, "export"), tenant_id=self.tenant_id)
        return download(found, file_name)


class _Schedules:
    """What tenants' and operators' schedules have in common."""

    @staticmethod
    def listed(tenant_id: uuid.UUID | None) -> Response:
        rows = ExportSchedule.objects.filter(tenant_id=tenant_id).order_by("dataset")
        return Response({"items": [show_schedule(row) for row in rows]})

    @staticmethod
    def put(view: ApiView, tenant_id: uuid.UUID | None, dataset: str) -> Response:
        form = view.read(SetExportSchedule)
        row = requesting.set_schedule(
            tenant_id=tenant_id,
            dataset=_dataset(dataset),
            file_format=Format(form["format"]),
            cadence=Cadence(form["cadence"]),
            expected_version=view.expected_version(),
            actor=view.actor,
            reason=form["reason"],
        )
        return with_etag(show_schedule(row), row.version)

    @staticmethod
    def delete(view: ApiView, tenant_id: uuid.UUID | None, dataset: str) -> Response:
        requesting.remove_schedule(
            tenant_id=tenant_id, dataset=_dataset(dataset), actor=view.actor, reason=""
        )
        return Response(None, 204)


def _dataset(text: str) -> Dataset:
    try:
        return Dataset(text)
    except ValueError as e:
        raise NotFound(f"no such data set: it is one of {', '.join(Dataset)}") from e


class ExportSchedulesView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ)

    @extend_schema(operation_id="list_export_schedules", responses=ExportSchedulesDocument)
    def get(self, request: Request) -> Response:
        """What is exported every day or month."""
        return _Schedules.listed(self.tenant_id)


class ExportScheduleView(ApiView):
    scopes = needs(PUT=Scope.ADMIN, DELETE=Scope.ADMIN)

    @extend_schema(
        operation_id="set_export_schedule", request=SetExportSchedule, responses=ExportScheduleDocument
    )
    def put(self, request: Request, dataset: str) -> Response:
        """Has a data set exported every day or month from now on."""
        return _Schedules.put(self, self.tenant_id, dataset)

    @extend_schema(operation_id="remove_export_schedule", responses={204: None})
    def delete(self, request: Request, dataset: str) -> Response:
        """No more of them; what was exported stays until it expires."""
        return _Schedules.delete(self, self.tenant_id, dataset)


# --- operators -----------------------------------------------------------------------------
class OperatorExportsView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "state", "tenant_id"})
    idempotent_post: ClassVar[bool] = True

    @extend_schema(operation_id="list_operator_exports", responses=page_of(OperatorExportDocument))
    def get(self, request: Request) -> Response:
        """The operators' exports, newest first; with `tenant_id` those of that tenant's data."""
        rows = Export.objects.filter(tenant_id=None, **_states(request))
        if "tenant_id" in request.query_params:
            tenant_id = tenant_uuid(request.query_params["tenant_id"])
            if tenant_id is None:
                raise bad_parameter("tenant_id", "not a tenant's id")
            rows = rows.filter(about_tenant_id=tenant_id)
        return keyset_page(request, rows, ["id"], show_operator_export, newest_first=True)

    @extend_schema(
        operation_id="create_operator_export",
        request=NewOperatorExport,
        responses={201: OperatorExportDocument},
    )
    def post(self, request: Request) -> Response:
        """Exports everybody's data, or one tenant's."""
        form = self.read(NewOperatorExport)
        about = None if form["tenant_id"] is None else tenant_in_body(form["tenant_id"])
        if about is not None:
            tenant_or_404(about)

        def create() -> Response:
            made = requesting.request_export(
                tenant_id=None,
                about_tenant_id=about,
                place=form["destination"],
                actor=self.actor,
                **_asked(form),
            )
            location = f"/v1/admin/exports/{made.public_id}"
            return Response(show_operator_export(made), 201, headers={"Location": location})

        return once(request, create)


class OperatorExportView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_operator_export", responses=OperatorExportDocument)
    def get(self, request: Request, export_id: str) -> Response:
        """One of the operators' exports."""
        found = requesting.find_export(named(EXPORT, export_id, "export"), tenant_id=None)
        return Response(show_operator_export(found))


class OperatorExportFileView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_operator_export_file", responses=FILE)
    def get(self, request: Request, export_id: str, file_name: str) -> FileResponse:
        """A file of one of the operators' exports; its ETag is its SHA-256."""
        found = requesting.find_export(named(EXPORT, export_id, "export"), tenant_id=None)
        return download(found, file_name)


class OperatorExportSchedulesView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="list_operator_export_schedules", responses=ExportSchedulesDocument)
    def get(self, request: Request) -> Response:
        """What is exported of everybody's data every day or month."""
        return _Schedules.listed(None)


class OperatorExportScheduleView(OperatorView):
    scopes = needs(PUT=Scope.OPERATOR, DELETE=Scope.OPERATOR)

    @extend_schema(
        operation_id="set_operator_export_schedule",
        request=SetExportSchedule,
        responses=ExportScheduleDocument,
    )
    def put(self, request: Request, dataset: str) -> Response:
        """Has everybody's data exported every day or month from now on."""
        return _Schedules.put(self, None, dataset)

    @extend_schema(operation_id="remove_operator_export_schedule", responses={204: None})
    def delete(self, request: Request, dataset: str) -> Response:
        """No more of them; what was exported stays until it expires."""
        return _Schedules.delete(self, None, dataset)
