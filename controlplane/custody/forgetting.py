"""The steps of an erasure. Each may be done again; it answers what it waits for, or nothing: it is done."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from billing.exports.models import Export
from billing.exports.places import folder_of as billing_folder
from billing.exports.places import open_place, sweep
from billing.pricing.accounts import freeze_account
from controlplane.actors import service
from controlplane.custody.certificates import FORMAT, certify
from controlplane.custody.exporting import folder_of
from controlplane.custody.holdings import ELSEWHERE, KEPT
from controlplane.custody.mails import tell_begun
from controlplane.custody.models import Erasure, ErasureState, TenantExport
from controlplane.evacuations.keepers import statuses_of
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.identity import TENANT, encode
from controlplane.moves.actions import abort_move
from controlplane.moves.machine import ABORTABLE, ENDED, State
from controlplane.moves.models import MoveStep, TenantMove
from controlplane.notifications.models import DeliveredEvent, Delivery, DeliveryAttempt
from controlplane.ownership import Superseded
from controlplane.ownership.installed import installed_store
from controlplane.sql import named_sql
from controlplane.tenants.actions.tenants import suspend_tenant
from controlplane.tenants.models import ApiKey, Tenant, tenant_uuid
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, CellState, Relocation, Site, Tenure
from controlplane.workspace.pool import drop

_SQL = named_sql(Path(__file__).parent / "sql" / "erasures.sql")
_LOG = structlog.get_logger(__name__)
_ACTOR = service("erasure")
_AUDIT = "events_auditevent"
#: Rows deleted in one transaction; how long one cell is asked in one go, and one call may take (seconds).
_PAGE, _WORK_SECONDS, _CALL_SECONDS = 5000, 20, 60.0
#: How long one file of an export may be put behind the end of its lease (seconds).
_PUT_SECONDS = 120


def pause(erasure: Erasure) -> str:
    """Nothing of the tenant begins any more; which cells are to be asked is written down; its owners hear of
    it while they are known."""
    if "cells" in erasure.done:
        return tell_begun(erasure)
    with transaction.atomic():
        suspend_tenant(tenant_id=erasure.tenant_id, actor=_ACTOR, reason=erasure.public_id)
        held = Tenure.objects.filter(tenant=erasure.tenant_id).values_list("cell_id", flat=True)
        # Cells that it never lived in are asked as well: a move that was given up may have left something.
        asked = Cell.objects.filter(~Q(state=CellState.RETIRED) | Q(pk__in=list(held)))
        erasure.done["cells"] = {name: {} for name in asked.order_by("name").values_list("name", flat=True)}
        record(
            action="tenant.erasure_begin", subject=erasure.public_id, tenant_id=erasure.tenant_id,
            actor=_ACTOR, reason="", after={"cells": len(erasure.done["cells"])},
        )  # fmt: skip
        erasure.save(update_fields=["done"])
    return tell_begun(erasure)


@transaction.atomic
def keys(erasure: Erasure) -> str:
    """No key of the tenant opens anything any more; routers are told."""
    live = ApiKey.objects.filter(tenant=erasure.tenant_id, revoked_at=None)
    for key_id in live.values_list("id", flat=True):
        publish(Change.Kind.KEY, key_id)
    live.update(revoked_at=Now())
    return ""


def moves(erasure: Erasure) -> str:
    """Whatever moves it is given up, or has handed it over."""
    over = [state.value for state in (*ENDED, State.CLEANUP)]
    move = TenantMove.objects.filter(tenant=erasure.tenant_id).exclude(state__in=over).first()
    if move is None:
        return ""
    if move.at in ABORTABLE and move.abort_reason is None:
        abort_move(move_id=move.id, actor=_ACTOR, reason=erasure.public_id)
    return f"{move.public_id} is in {move.state}"


def cells(erasure: Erasure) -> str:
    """Each cell removes what it has or had; all are asked, whoever waits for something."""
    waits = []
    told: dict[str, dict[str, Any]] = erasure.done["cells"]
    for name in [name for name, answer in told.items() if not answer.get("done")]:
        cell = Cell.objects.filter(pk=name).first()
        if cell is None:
            continue
        try:
            told[name] = _ask(cell, erasure.tenant_id, erasure.id)
        except CellUnreachable as away:
            if cell.state == CellState.RETIRED:
                told[name] = {"done": True, "not_reached": "the cell is retired and does not answer"}
                continue
            told[name] = {"done": False, "why": str(away)[:300]}
        if cell.state == CellState.RETIRED and _only_stores_are_away(told[name]):
            told[name] |= {"done": True}
        if not told[name]["done"]:
            waits.append(f"{name} {told[name]['why']}")
    if not waits:
        _release(erasure.tenant_id)
        for name, apart in _apart(told).items():
            told[name]["apart"] = apart
    return "; ".join(waits)


def _release(tenant_id: uuid.UUID) -> None:
    """No cell owns the tenant any more: none that is taken over is given it, and a copy of an earlier time
    that asks whose it is hears nothing."""
    store = installed_store()
    while (owned := store.tenant(tenant_id)) is not None:
        try:
            store.release_tenant(tenant_id, expected=owned.epoch)
        except Superseded:
            continue  # a takeover claimed it just now


def _apart(names: Collection[str]) -> dict[str, dict[str, str]]:
    """Of some cells the sites that do not follow their owner just now: they still have what it has erased."""
    sites = list(Site.objects.filter(cell__in=list(names), primary=False).exclude(keeper_url=""))
    found: dict[str, dict[str, str]] = {}
    for site, status in zip(sites, statuses_of(sites), strict=True):
        if not (status.owns or status.streaming):
            why = status.away or status.why or "it does not follow"
            found.setdefault(site.cell_id, {})[site.region_id] = why[:300]
    return found


def _only_stores_are_away(told: Mapping[str, Any]) -> bool:
    """Whether a cell has erased all but what local stores have that do not answer."""
    return bool(told.get("own_done")) and all(
        store["done"] or not store["reached"] for store in told["stores"]
    )


def _ask(cell: Cell, tenant_id: uuid.UUID, erasure_id: uuid.UUID) -> dict[str, Any]:
    until = time.monotonic() + _WORK_SECONDS
    path = f"/internal/tenants/{encode(TENANT, tenant_id)}/erase"
    while True:
        answer = call_cell(cell, "POST", path, {"erasure_id": str(erasure_id)}, timeout=_CALL_SECONDS)
        if answer["done"] or not str(answer["why"]).startswith("removes") or time.monotonic() > until:
            return dict(answer)


def again(cell: Cell, gone: Mapping[uuid.UUID, uuid.UUID]) -> int:
    """Has a cell erase whom it does not know as erased; how many it was asked for."""
    answer = call_cell(cell, "GET", "/internal/erased-tenants")
    known = {tenant_uuid(item["tenant_id"]) for item in answer["items"] if item["done"]}
    missing = [tenant for tenant in gone if tenant not in known]
    for tenant in missing:
        told = _ask(cell, tenant, gone[tenant])
        if told["removed"]:
            _LOG.error("a cell had an erased tenant again", cell=cell.name, tenant_id=encode(TENANT, tenant))
            record(
                action="tenant.erasure_again", subject=encode(TENANT, tenant), tenant_id=tenant,
                actor=_ACTOR, reason="", after={"cell": cell.name, "removed": told["removed"]},
            )  # fmt: skip
    return len(missing)


def exports(erasure: Erasure) -> str:
    """Exports end and their files go, once nobody may be writing one any more."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["end_exports"], {"tenant": erasure.tenant_id})
        cursor.execute(_SQL["end_billing_exports"], {"tenant": erasure.tenant_id})
        cursor.execute(_SQL["written"], {"tenant": erasure.tenant_id, "seconds": _PUT_SECONDS})
        written = int(cursor.fetchone()[0])
    if written:
        return f"waits for {written} exports whose files may still be written"
    files = 0
    of_custody = TenantExport.objects.filter(tenant_id=erasure.tenant_id)
    for export in of_custody:
        files += sweep(open_place(export.place), folder_of(export))
    of_billing = Export.objects.filter(Q(tenant_id=erasure.tenant_id) | Q(about_tenant_id=erasure.tenant_id))
    for one in of_billing:
        files += sweep(open_place(one.place), billing_folder(one))
    files += _strays(erasure)
    erasure.done["exports"] = {"files": erasure.done.get("exports", {}).get("files", 0) + files}
    return ""


def _strays(erasure: Erasure) -> int:
    """Files of the tenant that no row names."""
    url = settings.BILLING_EXPORTS["url"]
    return sweep(open_place(url), f"{encode(TENANT, erasure.tenant_id)}/") if url else 0


def workspace(erasure: Erasure) -> str:
    """The schema of the console's workspace."""
    schema = drop(erasure.tenant_id)
    if schema is not None:
        erasure.done["workspace"] = {"schema": schema}
    return ""


def rows(erasure: Erasure) -> str:
    """All rows of the control plane that name the tenant, but those that are kept: whom it is billed to and
    until when it lived where stays, so its last months are closed and billed like the others'."""
    tenant = erasure.tenant_id
    if waits := exports(erasure):  # what was asked for meanwhile: a row never goes before its files
        return waits
    freeze_account(tenant)
    Tenure.objects.filter(tenant=tenant, until=None).update(until=Now())
    counts: dict[str, int] = erasure.done.setdefault("control", {})
    leftovers: tuple[tuple[str, QuerySet[Any]], ...] = (
        ("notification tries", DeliveryAttempt.objects.filter(delivery__rule__tenant=tenant)),
        ("notification contents", DeliveredEvent.objects.filter(rule__tenant=tenant)),
        ("notifications", Delivery.objects.filter(rule__tenant=tenant)),
        ("steps of moves", MoveStep.objects.filter(move__tenant=tenant)),
    )
    for what, some in leftovers:
        while page := list(some.values_list("pk", flat=True)[:_PAGE]):
            gone, _ = some.model._default_manager.filter(pk__in=page).delete()
            counts[what] = counts.get(what, 0) + gone
    with connection.cursor() as cursor:
        cursor.execute(_SQL["forget_by_key"], {"tenant": str(tenant)})
        for table, column in _tables():
            while n := _forgotten(cursor, table, column, tenant):
                counts[table] = counts.get(table, 0) + n
    _unstick(encode(TENANT, tenant))
    with transaction.atomic():
        for found in Tenant.objects.filter(pk=tenant):
            publish(Change.Kind.TENANT, found.public_id)
            found.delete()
            counts["tenants_tenant"] = 1
    return ""


def _tables() -> list[tuple[str, str]]:
    """Tables that are emptied, with the column that names the tenant."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["tables"])
        # Of the audit log a part stays: the statement says which.
        return [(t, column) for t, column in cursor.fetchall() if t not in KEPT or t == _AUDIT]


def _forgotten(cursor: Any, table: str, column: str, tenant: uuid.UUID) -> int:
    name = "forget_audit" if table == _AUDIT else "forget"
    cursor.execute(_SQL[name], {"table": table, "column": column, "tenant": tenant, "page": _PAGE})
    return int(cursor.fetchone()[0])


def _unstick(tenant: str) -> None:
    """Relocations remember whom they could not move."""
    for relocation in Relocation.objects.filter(stuck__has_key=tenant):
        relocation.stuck.pop(tenant)
        relocation.save(update_fields=["stuck"])


def look(erasure: Erasure) -> str:
    """Nothing is left but what is kept, and that is counted."""
    left, kept = [], {}
    with connection.cursor() as cursor:
        cursor.execute(_SQL["tables"])
        for table, column in cursor.fetchall():
            cursor.execute(_SQL["count"], {"table": table, "column": column, "tenant": erasure.tenant_id})
            n = int(cursor.fetchone()[0])
            if table in KEPT:
                kept[table] = n
            elif n:
                left.append(f"{n} in {table}")
    if left:
        # Somebody who had begun before wrote it: it goes as the rest did.
        return rows(erasure) or f"rows came back: {', '.join(left)}"
    erasure.done["exports"]["files"] += _strays(erasure)
    erasure.done["kept"] = kept
    return ""


def certificate(erasure: Erasure) -> str:
    """What was done, signed."""
    with transaction.atomic():
        record(
            action="tenant.erasure_finish", subject=erasure.public_id, tenant_id=erasure.tenant_id,
            actor=_ACTOR, reason="", after={"cells": len(erasure.done.get("cells", {}))},
        )  # fmt: skip
        erasure.state, erasure.finished_at = ErasureState.DONE, timezone.now()
        erasure.certificate = certify(_content(erasure))
        erasure.plan.pop("slug", None)
        erasure.save(update_fields=["state", "finished_at", "certificate", "plan"])
    return ""


def _content(erasure: Erasure) -> dict[str, Any]:
    done = erasure.done
    where: list[dict[str, Any]] = []
    not_reached = []
    for name, told in sorted(done.get("cells", {}).items()):
        if "not_reached" in told:
            not_reached.append({"where": f"cell {name}", "why": told["not_reached"]})
        else:
            where.append(
                {"where": f"cell {name}", "at": told.get("erased_at"), "removed": told.get("removed", {})}
            )
        for store in told.get("stores", ()):
            local = f"local store {store['store']} of cell {name} in {store['region']}"
            if store["done"]:
                where.append({"where": local, "at": store["erased_at"], "removed": store["removed"]})
            else:
                not_reached.append({"where": local, "why": store["why"]})
        not_reached += [
            {"where": f"site {region} of cell {name}", "why": f"{why}; it goes when the site follows again"}
            for region, why in sorted(told.get("apart", {}).items())
        ]
    ended = erasure.finished_at and erasure.finished_at.isoformat()
    where += [
        {"where": "exports", "at": ended, "removed": done.get("exports", {})},
        {"where": "workspace schema", "at": ended, "removed": done.get("workspace", {})},
        {"where": "control plane", "at": ended, "removed": done.get("control", {})},
    ]
    kept = [
        {"what": table, "rows": n, "why": KEPT[table]}
        for table, n in sorted(done.get("kept", {}).items())
        if n
    ]
    days = int(settings.CUSTODY["backups_kept_days"])
    return {
        "format": FORMAT,
        "erasure_id": erasure.public_id,
        "tenant_id": encode(TENANT, erasure.tenant_id),
        "requested_by": erasure.requested_by,
        "requested_at": erasure.created_at.isoformat(),
        "begun_at": erasure.began_at and erasure.began_at.isoformat(),
        "finished_at": ended,
        "erased": where,
        "kept": kept + [{"what": what, "rows": None, "why": why} for what, why in ELSEWHERE.items()],
        "not_reached": not_reached,
        "backups": f"Backups and logs of databases made before hold what they held; they end"
        f" after {days} days. A cell that is restored from one is made to erase the tenant anew, soon.",
        "keys": f"{settings.CONFIGURATION.console_url.rstrip('/')}/erasures/keys",
    }
