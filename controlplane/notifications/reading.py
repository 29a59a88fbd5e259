"""Reads the event feeds of cells for the tenants whose rules want something of them.

The cursor of a tenant is (epoch, transaction, number) in the feed of the cell it lives in, and moves along
with it. It is advanced in the transaction that keeps the events, only from where it was read: nothing is
lost and nothing is told twice, whoever reads and whoever dies.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from django.db import connection, transaction

from controlplane.identity import TENANT, encode
from controlplane.notifications.kinds import OF_CELLS
from controlplane.notifications.matching import EVERYTHING
from controlplane.notifications.models import CellSeen, NotificationRule
from controlplane.notifications.telling import Happened, rules_for, tell, watched
from controlplane.sql import named_sql
from controlplane.tenants.models import tenant_uuid
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, CellState

_SQL = named_sql(Path(__file__).parent / "sql" / "notifications.sql")
_LOG = structlog.get_logger(__name__)
#: Tenants of one request to a cell, and how long one call reads (seconds).
PAGE, PATIENCE = 200, 15.0
#: What a cell has of it at least.
_LEAST = 1.0
#: Tenants that a cell is asked about at once where a page took too long; and behind whom the next call
#: begins, where the last one's time was over. Each process learns that for itself.
_pages_of: dict[str, int] = {}
_behind: dict[str, uuid.UUID | None] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reader:
    tenant_id: uuid.UUID
    since: datetime
    place: list[int] | None


def read_feeds() -> int:
    """Reads every cell's feed once; how many events some rule wanted. A cell that is away is read later:
    those that answered when last looked at come first, each has its share, and none is always the last."""
    until, told = time.monotonic() + PATIENCE, 0
    cells = list(Cell.objects.exclude(state=CellState.RETIRED))
    cells.sort(key=lambda cell: (bool(cell.status_error), random.random()))
    for n, cell in enumerate(cells):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            told += read_feed(cell, until=time.monotonic() + max(_LEAST, left / (len(cells) - n)))
        except CellUnreachable as away:
            _LOG.warning("events not read", cell=cell.name, error=str(away))
    with connection.cursor() as cursor:
        cursor.execute(_SQL["forget_readers"], {"kinds": _kinds()})
    return told


def read_feed(cell: Cell, *, until: float) -> int:
    """Reads one cell's feed on for all whose rules want it, as far as there is something. Raises
    `CellUnreachable`."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["readers"], {"cell": cell.name, "kinds": _kinds()})
    told, asked = 0, False
    for readers in _pages(cell):
        if time.monotonic() >= until:
            break
        asked, last = True, readers[-1].tenant_id
        while readers and time.monotonic() < until:
            answer = _ask_fewer(cell, readers)
            told += sum(_keep(cell, readers, item) for item in answer["items"])
            _look_at_epoch(cell, int(answer["epoch"]))
            again = {item["tenant_id"] for item in answer["items"] if item["more"]}
            readers = [
                _Reader(tenant_id=r.tenant_id, since=r.since, place=_reached(answer, r.tenant_id))
                for r in readers
                if encode(TENANT, r.tenant_id) in again
            ]
        _behind[cell.name] = last
    else:
        _behind[cell.name] = None  # all were read: the next call begins with the first
    if not asked and NotificationRule.objects.filter(enabled=True).exists():
        _look_at_epoch(cell, int(_ask(cell, [])["epoch"]))
    return told


def _kinds() -> list[str]:
    return [*OF_CELLS, EVERYTHING]


def _pages(cell: Cell) -> Iterator[list[_Reader]]:
    after = _behind.get(cell.name)
    while True:
        limit = _pages_of.get(cell.name, PAGE)
        with connection.cursor() as cursor:
            cursor.execute(
                _SQL["read_on"], {"cell": cell.name, "after": after, "kinds": _kinds(), "limit": limit}
            )
            page = [_Reader(tenant_id=t, since=since, place=place) for t, since, place in cursor.fetchall()]
        if page:
            yield page
        if len(page) < limit:
            return
        after = page[-1].tenant_id


def _ask_fewer(cell: Cell, readers: Sequence[_Reader]) -> Any:
    """Asks; where that takes too long, half as many are asked about the next time."""
    try:
        answer = _ask(cell, readers)
    except CellUnreachable as away:
        if "Timeout" in str(away):
            _pages_of[cell.name] = max(1, len(readers) // 2)
        raise
    _pages_of[cell.name] = min(PAGE, 2 * _pages_of.get(cell.name, PAGE))
    return answer


def _ask(cell: Cell, readers: Sequence[_Reader]) -> Any:
    answer = call_cell(
        cell,
        "POST",
        "/internal/events:read",
        {
            "tenants": [
                {
                    "tenant_id": encode(TENANT, reader.tenant_id),
                    "since": reader.since.isoformat(),
                    "after": reader.place,
                }
                for reader in readers
            ],
            "types": list(OF_CELLS),
        },
    )
    if not isinstance(answer, dict) or not {"epoch", "items"} <= set(answer):
        raise CellUnreachable(f"{cell.name}: unexpected answer to POST /internal/events:read")
    return answer


def _reached(answer: Mapping[str, Any], tenant_id: uuid.UUID) -> list[int]:
    text = encode(TENANT, tenant_id)
    return next(list(item["reached"]) for item in answer["items"] if item["tenant_id"] == text)


@transaction.atomic
def _keep(cell: Cell, readers: Sequence[_Reader], item: Mapping[str, Any]) -> int:
    """Keeps what one tenant's feed holds, and how far it was read, or nothing if another did."""
    tenant_id = tenant_uuid(item["tenant_id"])
    reader = next((r for r in readers if r.tenant_id == tenant_id), None)
    if reader is None or tenant_id is None:
        raise CellUnreachable(f"{cell.name} answered for a tenant it was not asked about")
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["advance"], {"tenant": tenant_id, "before": reader.place, "place": list(item["reached"])}
        )
        if cursor.fetchone() is None:
            return 0
    events = item["events"]
    if not events:
        return 0
    rules = rules_for(tenant_id, list(OF_CELLS))
    return sum(
        tell(
            Happened(
                event_id=event["event_id"],
                tenant_id=tenant_id,
                kind=event["type"],
                source=f"cell/{cell.name}",
                subject=event["subject"],
                at=datetime.fromisoformat(event["at"]),
                actor=event["actor"] or "",
                data=event["data"],
            ),
            rules=rules,
            wake=False,
        )
        > 0
        for event in events
    )


@transaction.atomic
def _look_at_epoch(cell: Cell, epoch: int) -> None:
    """A cell that is under a higher epoch than before was taken over."""
    seen, _ = CellSeen.objects.get_or_create(cell=cell.name, defaults={"epoch": epoch})
    if epoch <= seen.epoch:
        return
    if not CellSeen.objects.filter(pk=cell.name, epoch=seen.epoch).update(epoch=epoch):
        return
    data = {"cell": cell.name, "epoch": epoch, "epoch_before": seen.epoch}
    key = f"{cell.name}:{epoch}"
    watched(kind="cell.taken_over", tenant_id=None, subject=cell.name, key=key, data=data)
    # Operators have heard of the cell; of its tenants each hears by its own rules.
    asking = NotificationRule.objects.filter(
        enabled=True, tenant__placement__cell=cell, kinds__overlap=["cell.taken_over", EVERYTHING]
    ).order_by("tenant_id", "id")
    for rule in asking:
        watched(
            kind="cell.taken_over", tenant_id=rule.tenant_id, subject=cell.name, key=key, data=data,
            rules=[rule],
        )  # fmt: skip
