"""Exports and their schedules, as stored."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from billing.exports.machine import Cadence, Dataset, ExportState, Format
from billing.ids import EXPORT, encode, new_id


def _choices(values: type) -> list[tuple[str, str]]:
    return [(v.value, v.value) for v in values]  # type: ignore[attr-defined]


class Export(models.Model):
    """Files that somebody asked for. `ExportState` says what may happen to it; only the holder of the
    lease writes it while it runs."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField(null=True)  # whose it is; null: the operators'
    about_tenant_id = models.UUIDField(null=True)  # whose data; null: everybody's
    dataset = models.CharField(max_length=16, choices=_choices(Dataset))
    format = models.CharField(max_length=8, choices=_choices(Format))
    since = models.DateField()  # UTC days, half-open
    until = models.DateField()
    place = models.TextField()  # URL of the folder its own folder lies in
    state = models.CharField(max_length=10, choices=_choices(ExportState), default=ExportState.REQUESTED)
    cadence = models.CharField(max_length=8, blank=True, default="")  # of the schedule that asked for it
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())  # what was rated later is not in it
    due_at = models.DateTimeField(db_default=Now())  # next try
    attempts = models.IntegerField(default=0)
    lease = models.UUIDField(null=True)
    leased_until = models.DateTimeField(null=True)
    rows_done = models.BigIntegerField(default=0)
    rows_expected = models.BigIntegerField(null=True)  # an estimate while it runs
    # [{"name", "kind": data|schema|manifest, "rows", "bytes", "sha256"}]; whole once it is done.
    files = models.JSONField(default=list)
    error = models.TextField(blank=True, default="")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    cleaned_at = models.DateTimeField(null=True)  # nothing of it lies anywhere any more

    class Meta:
        db_table = "billing_export"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(until__gt=F("since")), name="export_of_days"),
            models.CheckConstraint(
                condition=Q(tenant_id=None)
                | Q(about_tenant_id__isnull=False, about_tenant_id=F("tenant_id")),
                name="export_of_own_data",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in ExportState]), name="export_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state="RUNNING", lease__isnull=False, leased_until__isnull=False)
                | (~Q(state="RUNNING") & Q(lease=None)),
                name="export_runs_under_a_lease",
            ),
            models.UniqueConstraint(
                fields=["tenant_id", "dataset", "format", "since", "until"],
                condition=~Q(cadence=""),
                nulls_distinct=False,
                name="export_scheduled_once",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "id"], name="export_of_tenant"),
            models.Index(
                fields=["due_at"], condition=Q(state__in=["REQUESTED", "RUNNING"]), name="export_due"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return encode(EXPORT, self.id)


class ExportSchedule(models.Model):
    """What is exported for a tenant (null: for operators) every day or month, one line per data set."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField(null=True)
    dataset = models.CharField(max_length=16, choices=_choices(Dataset))
    format = models.CharField(max_length=8, choices=_choices(Format))
    cadence = models.CharField(max_length=8, choices=_choices(Cadence))
    created_at = models.DateTimeField(db_default=Now())  # periods that ended before are not made
    version = models.BigIntegerField(default=1)

    class Meta:
        db_table = "billing_export_schedule"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "dataset"], nulls_distinct=False, name="export_schedule_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.dataset} {self.cadence}"
