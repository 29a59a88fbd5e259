"""Telling a cell about its tenants, until it confirms, and noticing when the two disagree."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest, Now

from controlplane.events.recording import want
from controlplane.identity import TENANT, encode
from controlplane.tenants.models import Tenant, tenant_uuid
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, Placement

_LOG = structlog.get_logger(__name__)
TOPIC = "push_tenant"


class EpochMismatch(CellUnreachable):
    """The cell follows another epoch than the one recorded here; a person must look."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a cell knows, or should know, of a tenant."""

    state: str
    ownership_epoch: int
    config_version: int


def config_of(tenant: Tenant) -> dict[str, Any]:
    """The tenant's part of the cell's `TenantConfig`."""
    quota = tenant.quota
    return {
        "job_runs_per_second": quota.job_runs_per_second,
        "strict_jobs_per_second": quota.strict_jobs_per_second,
        "pending_timers": quota.pending_timers,
        "running_runs": quota.running_runs,
        "workflow_steps_per_second": quota.workflow_steps_per_second,
        "compensation_deadline_seconds": tenant.compensation_deadline_seconds,
        "default_window_seconds": tenant.default_window_seconds,
        "default_once_window_seconds": tenant.default_once_window_seconds,
        "default_region_policy": tenant.default_region_policy,
        "home_region": tenant.home_region_id,
        "paused": tenant.paused_at is not None,
        "low_delayed": tenant.low_delayed_at is not None,
    }


def push_tenant(subject: str) -> None:
    """Outbox handler: puts a tenant's present state and configuration to its cell.

    Raises `CellUnreachable` (`EpochMismatch` is one) to be tried again. Safe to run any number of
    times: the cell keeps the newest version.
    """
    placement = (
        Placement.objects.select_related("tenant__quota", "cell").filter(tenant=uuid.UUID(subject)).first()
    )
    if placement is None:
        return
    tenant = placement.tenant
    epoch = max(placement.epoch, placement.cell.ownership_epoch)
    answer = call_cell(
        placement.cell,
        "PUT",
        f"/internal/tenants/{tenant.public_id}",
        {
            "state": tenant.state,
            "ownership_epoch": epoch,
            "config_version": tenant.version,
            "config": config_of(tenant),
        },
    )
    held = answer.get("config_version") if isinstance(answer, dict) else None
    if not isinstance(held, int):
        raise CellUnreachable(f"{placement.cell_id}: no config_version in the answer")
    if answer.get("ownership_epoch") != epoch:
        # A later owner has told it, of whom nothing is recorded here. Nothing was taken over.
        raise EpochMismatch(
            f"{placement.cell_id} is under epoch {answer.get('ownership_epoch')}, not {epoch}"
        )
    if held > tenant.version:
        _overtaken(tenant.id, held)
        return
    Placement.objects.filter(pk=tenant.id, cell=placement.cell_id).update(
        confirmed_version=Greatest(F("confirmed_version"), Value(held)), confirmed_at=Now()
    )


@transaction.atomic
def _overtaken(tenant_id: uuid.UUID, held: int) -> None:
    """The cell has a newer version than we sent. Either somebody was faster with a later one, or it
    is newer than what we ever wrote: we were restored from a backup. What is recorded here decides,
    so its version then goes beyond the cell's."""
    if Tenant.objects.filter(pk=tenant_id, version__lt=held).update(version=held + 1):
        _LOG.error("cell is ahead of the control plane", tenant_id=str(tenant_id), held=held)
    want(topic=TOPIC, subject=str(tenant_id))


def compare(
    recorded: Mapping[uuid.UUID, Told], told: Mapping[uuid.UUID, Told]
) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    """Pure: (tenants the cell must be told about, active tenants it has and should not)."""
    behind = sorted(t for t, wanted in recorded.items() if told.get(t) != wanted)
    strangers = sorted(t for t, has in told.items() if t not in recorded and has.state == "ACTIVE")
    return behind, strangers


def recorded_on(cell: Cell) -> dict[uuid.UUID, Told]:
    """What the cell should know."""
    rows = cell.placements.values_list("tenant_id", "tenant__state", "epoch", "tenant__version")
    return {
        tenant: Told(state=state, ownership_epoch=max(epoch, cell.ownership_epoch), config_version=version)
        for tenant, state, epoch, version in rows.iterator(chunk_size=5_000)
    }


def told_to(cell: Cell) -> dict[uuid.UUID, Told]:
    """What the cell says it knows. Raises `CellUnreachable`."""
    answer = call_cell(cell, "GET", "/internal/tenants")
    told: dict[uuid.UUID, Told] = {}
    try:
        for item in answer["items"]:
            tenant_id = tenant_uuid(item["tenant_id"])
            if tenant_id is not None:
                told[tenant_id] = Told(
                    state=str(item["state"]),
                    ownership_epoch=int(item["ownership_epoch"]),
                    config_version=int(item["config_version"]),
                )
    except (KeyError, TypeError, ValueError) as e:
        raise CellUnreachable(f"{cell.name}: unexpected answer to GET /internal/tenants") from e
    return told


def settle_drift(cell: Cell) -> int:
    """Has every tenant told again whose cell knows something else; says how many."""
    recorded = recorded_on(cell)
    behind, strangers = compare(recorded, told_to(cell))
    for tenant_id in strangers:
        _LOG.error(
            "active on a cell it is not placed on", cell=cell.name, tenant_id=encode(TENANT, tenant_id)
        )
    for tenant_id in behind:
        with transaction.atomic():
            want(topic=TOPIC, subject=str(tenant_id))
    return len(behind)
