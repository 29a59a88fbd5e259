"""What the API takes and shows of exports and their schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rest_framework import serializers

from billing.exports.machine import Cadence, Dataset, Format
from billing.exports.models import Export, ExportSchedule
from billing.exports.places import folder_of
from billing.ids import TENANT, encode
from controlplane.api.base import ReasonMixin, Text
from controlplane.api.documents import Document

_DATASETS = [d.value for d in Dataset]
_FORMATS = [f.value for f in Format]


class NewExport(ReasonMixin):
    """Both days are included; UTC. FOCUS and INVOICE_LINES come in whole months."""

    dataset = serializers.ChoiceField(_DATASETS)
    format = serializers.ChoiceField(_FORMATS, required=False, default=Format.CSV.value)
    vars()["from"] = serializers.DateField()  # no name for a Python attribute
    to = serializers.DateField()


class NewOperatorExport(NewExport):
    """Everybody's data, or one tenant's; to the installation's place, or to another."""

    tenant_id = Text(required=False, allow_null=True, default=None, max_length=40)
    destination = Text(
        required=False,
        allow_null=True,
        default=None,
        max_length=1000,
        help_text="s3://bucket/prefix or file:///folder; a folder of its own is made there",
    )


class SetExportSchedule(ReasonMixin):
    """DAILY: the day before, of months the one so far. MONTHLY: the month before, once closed."""

    cadence = serializers.ChoiceField([c.value for c in Cadence])
    format = serializers.ChoiceField(_FORMATS, required=False, default=Format.CSV.value)


class ExportFileDocument(Document):
    """`rows` is null of what describes the data: `kind` schema and manifest."""

    name = serializers.CharField()
    kind = serializers.CharField()
    rows = serializers.IntegerField(allow_null=True)
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField()


class ExportDocument(Document):
    """`rows_expected` is an estimate until it is done; `files` are there once it is."""

    export_id = serializers.CharField()
    tenant_id = serializers.CharField(allow_null=True, help_text="whose data; null: everybody's")
    dataset = serializers.CharField()
    format = serializers.CharField()
    vars()["from"] = serializers.DateField()
    to = serializers.DateField()
    state = serializers.CharField()
    scheduled = serializers.BooleanField()
    rows_done = serializers.IntegerField()
    rows_expected = serializers.IntegerField(allow_null=True)
    attempts = serializers.IntegerField()
    error = serializers.CharField(allow_null=True, help_text="why the last try failed")
    files = ExportFileDocument(many=True)
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)


class OperatorExportDocument(ExportDocument):
    destination = serializers.CharField(help_text="the folder its files lie in")


class ExportScheduleDocument(Document):
    dataset = serializers.CharField()
    format = serializers.CharField()
    cadence = serializers.CharField()
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField()


class ExportSchedulesDocument(Document):
    items = ExportScheduleDocument(many=True)


def show_export(export: Export) -> dict[str, Any]:
    """An export as its owner sees it."""
    about = export.about_tenant_id
    said = {
        "export_id": export.public_id,
        "tenant_id": None if about is None else encode(TENANT, about),
        "dataset": export.dataset,
        "format": export.format,
        "from": export.since,
        "to": export.until - timedelta(days=1),
        "state": export.state,
        "scheduled": bool(export.cadence),
        "rows_done": export.rows_done,
        "rows_expected": export.rows_expected,
        "attempts": export.attempts,
        "error": export.error or None,
        "files": export.files,
        "requested_by": export.requested_by,
        "created_at": export.created_at,
        "started_at": export.started_at,
        "finished_at": export.finished_at,
        "expires_at": export.expires_at,
    }
    return dict(ExportDocument(said).data)


def show_operator_export(export: Export) -> dict[str, Any]:
    """The same, and where it lies."""
    return {**show_export(export), "destination": f"{export.place.rstrip('/')}/{folder_of(export)}"}


def show_schedule(schedule: ExportSchedule) -> dict[str, Any]:
    """What is exported regularly."""
    return dict(ExportScheduleDocument(schedule).data)
