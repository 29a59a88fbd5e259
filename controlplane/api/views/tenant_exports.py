"""/v1/tenant-exports: everything a tenant has, in an open format."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.exports.places import Missing, Retryable, open_place
from cells.contract import Scope
from controlplane.api.base import ApiView
from controlplane.api.documents import Document, page_of
from controlplane.api.forms import Because
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.custody import exporting
from controlplane.custody.contents import KINDS
from controlplane.custody.models import EXPORT, ExportState, TenantExport
from controlplane.errors import Conflicting, NotFound, Unavailable
from controlplane.identity import decode


class TenantExportFileDocument(Document):
    """`rows` is null of the manifest."""

    name = serializers.CharField()
    kind = serializers.CharField()
    rows = serializers.IntegerField(allow_null=True)
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()


class TenantExportDocument(Document):
    """`kinds_done` of `kinds` are written; `counts` are rows so far. `files` are there once it is DONE."""

    tenant_export_id = serializers.CharField()
    state = serializers.CharField()
    kinds = serializers.ListField(child=serializers.CharField())
    kinds_done = serializers.IntegerField()
    counts = serializers.DictField(child=serializers.IntegerField())
    files = TenantExportFileDocument(many=True)
    error = serializers.CharField(allow_null=True, help_text="why the last try failed")
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)


def show(export: TenantExport) -> dict[str, Any]:
    """An export as its owner sees it."""
    said = {
        "tenant_export_id": export.public_id,
        "state": export.state,
        "kinds": [name for name, _ in KINDS],
        "kinds_done": export.kind,
        "counts": export.counts,
        "files": export.files if export.state == ExportState.DONE else [],
        "error": export.error or None,
        "requested_by": export.requested_by,
        "created_at": export.created_at,
        "finished_at": export.finished_at,
        "expires_at": export.expires_at,
    }
    return dict(TenantExportDocument(said).data)


def download(export: TenantExport, name: str) -> FileResponse:
    """A file of an export that is done. What is not in its list of files is not found."""
    if export.state == ExportState.EXPIRED:
        raise NotFound("nothing left of this export: it has expired")
    if export.state != ExportState.DONE:
        raise Conflicting(f"the export is {export.state}: its files are there once it is DONE")
    found = next((file for file in export.files if file["name"] == name), None)
    if found is None:
        raise NotFound("no such file")
    place, path = open_place(export.place), exporting.folder_of(export) + name
    try:
        local = place.local(path)
        if local is not None:
            opened = local.open("rb")
        else:
            with tempfile.TemporaryDirectory(prefix="clockhouse-download-") as folder:
                copy = Path(folder) / "file"
                place.fetch(path, copy)
                opened = copy.open("rb")  # it can be read until it is closed, though its name is gone
    except (Missing, FileNotFoundError) as e:
        raise NotFound("no such file any more") from e
    except Retryable as e:
        raise Unavailable("the place of exports cannot be reached") from e
    kind = "application/json" if name.endswith(".json") else "application/jsonl"
    response = FileResponse(opened, as_attachment=True, filename=name, content_type=kind)
    response["Content-Length"] = str(found["bytes"])
    response["ETag"] = f'"{found["sha256"]}"'
    return response


class _Exports(ApiView):
    def found(self, text: str) -> TenantExport:
        return exporting.find_export(decode(EXPORT, text), tenant_id=self.tenant_id)


class TenantExportsView(_Exports):
    scopes = needs(GET=Scope.ADMIN, POST=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(operation_id="list_tenant_exports", responses=page_of(TenantExportDocument))
    def get(self, request: Request) -> Response:
        """Exports of everything, newest first."""
        rows = TenantExport.objects.filter(tenant_id=self.tenant_id)
        return keyset_page(request, rows, ["id"], show, newest_first=True)

    @extend_schema(
        operation_id="create_tenant_export",
        request=Because,
        responses={200: TenantExportDocument, 202: TenantExportDocument},
    )
    def post(self, request: Request) -> Response:
        """Writes everything you have here into files, a line of JSON for each thing; follow it by its id."""
        reason = self.read(Because)["reason"]

        def create() -> Response:
            made = exporting.request_export(
                tenant_id=self.tenant_id, actor=self.actor, reason=reason, key=True
            )
            location = f"/v1/tenant-exports/{made.public_id}"
            return Response(show(made), 202, headers={"Location": location})

        return once(request, create)


class TenantExportView(_Exports):
    scopes = needs(GET=Scope.ADMIN)

    @extend_schema(operation_id="get_tenant_export", responses=TenantExportDocument)
    def get(self, request: Request, tenant_export_id: str) -> Response:
        """How far an export is; its files once it is done."""
        return Response(show(self.found(tenant_export_id)))


#: A file of an export, or none yet.
FILE: dict[Any, Any] = {
    (200, "application/jsonl"): OpenApiTypes.BINARY,
    (200, "application/json"): OpenApiTypes.ANY,  # the manifest
    409: None,
}


class TenantExportFileView(_Exports):
    scopes = needs(GET=Scope.ADMIN)

    @extend_schema(operation_id="get_tenant_export_file", responses=FILE)
    def get(self, request: Request, tenant_export_id: str, file_name: str) -> FileResponse:
        """A file of an export; its ETag is its SHA-256."""
        return download(self.found(tenant_export_id), file_name)
