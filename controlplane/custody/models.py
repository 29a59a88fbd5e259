"""Exports of everything a tenant has, and erasures, as stored."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.identity import encode, new_id

EXPORT, ERASURE = "tex", "ers"


class ExportState(models.TextChoices):
    """The life of a tenant's export."""

    REQUESTED = "REQUESTED"  # waits for a worker
    RUNNING = "RUNNING"  # somebody writes it under a lease, or did until it lapsed
    DONE = "DONE"  # its files are whole and can be fetched
    FAILED = "FAILED"  # given up; `error` says why
    EXPIRED = "EXPIRED"  # its files are gone


#: Exports that are not over.
OPEN = (ExportState.REQUESTED, ExportState.RUNNING)


class TenantExport(models.Model):
    """Everything of a tenant in files, written kind by kind. `kind`, `cursor` and `files` are kept with each
    file, so that whoever takes over goes on behind the last one. Refers to its tenant by id only."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField()
    state = models.CharField(max_length=10, choices=ExportState.choices, default=ExportState.REQUESTED)
    place = models.TextField()  # URL of the folder its own folder lies in
    kind = models.IntegerField(default=0)  # which of `contents.KINDS` is being written
    cursor = models.TextField(blank=True, default="")  # behind what was written of it
    part = models.IntegerField(default=0)  # files written of it
    counts = models.JSONField(default=dict)  # rows by kind
    files = models.JSONField(default=list)  # [{"name", "kind", "rows", "bytes", "sha256"}]
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(default=0)  # since a file was last written
    lease = models.UUIDField(null=True)
    leased_until = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="")
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id"],
                condition=Q(state__in=["REQUESTED", "RUNNING"]),
                name="tenant_export_one_open",
            ),
            models.CheckConstraint(condition=Q(state__in=ExportState.values), name="tenant_export_state"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="tenant_exports_of"),
            models.Index(
                fields=["due_at"], condition=Q(state__in=["REQUESTED", "RUNNING"]), name="tenant_export_due"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return encode(EXPORT, self.id)


class ErasureState(models.TextChoices):
    """The life of an erasure."""

    REQUESTED = "REQUESTED"  # its time of grace runs: it can be cancelled, and nothing is changed yet
    RUNNING = "RUNNING"  # it goes on until it is done; there is no way back
    DONE = "DONE"  # nothing is left but what is named in the certificate
    CANCELLED = "CANCELLED"  # it never began


class Erasure(models.Model):
    """A tenant that goes for good. `step` and `done` say how far it is, so that whoever takes over goes on
    there. Refers to its tenant by id only, and outlives it: by these rows everybody knows who was erased."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField()
    state = models.CharField(max_length=10, choices=ErasureState.choices, default=ErasureState.REQUESTED)
    step = models.IntegerField(default=0)  # which of `erasing.STEPS` is next
    why = models.TextField(blank=True, default="")  # what it waits for
    plan = models.JSONField(default=dict)  # numbers, as they were when it was asked for
    done = models.JSONField(default=dict)  # what was removed where: {"cells": {name: …}, "control": {…}}
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField()  # the end of the time of grace; then, when to look again
    began_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    certificate = models.JSONField(null=True)  # what is signed, and the signature
    link_sha256 = models.BinaryField()  # of the secret in the link that fetches the certificate
    fetched_at = models.DateTimeField(null=True)  # by that link, which is over then

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id"], condition=~Q(state="CANCELLED"), name="erasure_once"
            ),
            models.CheckConstraint(condition=Q(state__in=ErasureState.values), name="erasure_state"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=Q(state__in=["REQUESTED", "RUNNING"]), name="erasure_due"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return encode(ERASURE, self.id)
