"""Takes meter records into the ledger: each exactly once, whoever sends it how often.

A record that comes again is found to be identical; other content under its key is refused and
an alarm is kept. A tenant must have lived on the sending cell in that minute.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from billing.sql import named_sql
from billing.watermarks import know_owners
from cells.contract import MeterRecord, Metric
from cells.domain.ids import TENANT, decode

_SQL = named_sql("ingest")
_LOG = structlog.get_logger(__name__)

#: Records a call may hold.
MOST_RECORDS = 5_000
OLDEST = timedelta(days=35)
#: How far a sender's clock may be ahead of ours, and two databases' clocks apart.
AHEAD = timedelta(minutes=5)
SKEW = timedelta(seconds=5)
_MINUTE = timedelta(minutes=1)
_BIGGEST = 2**63 - 1
#: Of a minute. So a month's sum of many hosts stays a 63-bit number.
_BIGGEST_QUANTITY = 10**14

#: (tenant, cell, since, until): who lived where. `until` None: still there.
Tenure = tuple[uuid.UUID, str, datetime, datetime | None]
TenuresOf = Callable[[Collection[uuid.UUID], datetime, datetime], Sequence[Tenure]]


class Result(enum.StrEnum):
    """What became of one record."""

    ACCEPTED = "accepted"  # new in the ledger
    IDENTICAL = "identical"  # was there already
    CONFLICT = "conflict"  # its key has another quantity; refused, with an alarm
    NOT_PLACED = "not_placed"  # the tenant did not live on that cell in that minute
    TOO_OLD = "too_old"  # more than 35 days
    TOO_NEW = "too_new"  # more than 5 minutes ahead


class MalformedRecord(Exception):
    """A record that no correct sender makes; the whole call is refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parsed:
    tenant_id: uuid.UUID
    minute: datetime
    record: MeterRecord

    @property
    def key(self) -> tuple[Any, ...]:
        r = self.record
        return (self.tenant_id, self.minute, r.metric, r.region_policy, r.cell, r.store, r.epoch, r.host)


def _parse(n: int, record: MeterRecord) -> _Parsed:
    tenant_id = decode(TENANT, record.tenant_id)
    if tenant_id is None:
        raise MalformedRecord(f"/records/{n}/tenant_id: not a tenant's id")
    try:
        minute = datetime.strptime(record.minute, "%Y-%m-%dT%H:%M:00Z").replace(tzinfo=UTC)
    except ValueError as e:
        raise MalformedRecord(f"/records/{n}/minute: not a whole minute in UTC") from e
    if not 0 <= record.quantity <= _BIGGEST_QUANTITY:
        raise MalformedRecord(f"/records/{n}/quantity: not a count")
    if not 0 <= record.store <= 255 or not 0 <= record.epoch <= _BIGGEST:
        raise MalformedRecord(f"/records/{n}: store or epoch out of range")
    if not (0 < len(record.host) <= 200 and len(record.region_policy) <= 20):
        raise MalformedRecord(f"/records/{n}: host or region_policy too long or missing")
    return _Parsed(tenant_id=tenant_id, minute=minute, record=record)


def lived(tenures: Sequence[Tenure], record_cell: str | None, minute: datetime) -> bool:
    """Whether one of a tenant's stays touches the minute, on the cell or (None) anywhere."""
    return any(
        (record_cell is None or cell == record_cell)
        and since < minute + _MINUTE + SKEW
        and (until is None or until > minute - SKEW)
        for _, cell, since, until in tenures
    )


def _tenures(parsed: Sequence[_Parsed]) -> dict[uuid.UUID, list[Tenure]]:
    tenures_of: TenuresOf = import_string(settings.BILLING_TENURES)
    found = tenures_of(
        {p.tenant_id for p in parsed},
        min(p.minute for p in parsed) - SKEW,
        max(p.minute for p in parsed) + _MINUTE + SKEW,
    )
    by_tenant: dict[uuid.UUID, list[Tenure]] = {}
    for tenure in found:
        by_tenant.setdefault(tenure[0], []).append(tenure)
    return by_tenant


def ingest(records: Sequence[MeterRecord], *, anywhere: bool = False) -> list[Result]:
    """What became of each record, in order. Raises `MalformedRecord` before anything is taken.

    `anywhere`: the sender is no cell (a router); the tenant must only have lived somewhere.
    """
    parsed = [_parse(n, record) for n, record in enumerate(records)]
    if not parsed:
        return []
    now = timezone.now()
    tenures = _tenures(parsed)
    results: list[Result | None] = [None] * len(parsed)
    first: dict[tuple[Any, ...], int] = {}
    repeats: list[tuple[int, int]] = []
    for n, p in enumerate(parsed):
        cell = None if anywhere else p.record.cell
        if p.minute < now - OLDEST:
            results[n] = Result.TOO_OLD
        elif p.minute > now + AHEAD:
            results[n] = Result.TOO_NEW
        elif not lived(tenures.get(p.tenant_id, ()), cell, p.minute):
            results[n] = Result.NOT_PLACED
        elif (before := first.setdefault(p.key, n)) != n:
            repeats.append((n, before))
    fresh = _take(parsed, list(first.values()), results)
    for n, before in repeats:
        same = parsed[n].record.quantity == parsed[before].record.quantity
        # Against the ledger where the first of the two was not new itself.
        if before in fresh:
            results[n] = Result.IDENTICAL if same else Result.CONFLICT
            if not same:
                _alarm([(parsed[n], parsed[before].record.quantity)])
        else:
            _settle_known(parsed, [n], results)
    return [r for r in results if r is not None]


def _columns(parsed: Sequence[_Parsed], picked: Sequence[int]) -> dict[str, list[Any]]:
    rows = [parsed[n] for n in picked]
    return {
        "n": list(picked),
        "tenant_id": [p.tenant_id for p in rows],
        "minute": [p.minute for p in rows],
        "metric": [p.record.metric.value for p in rows],
        "region_policy": [p.record.region_policy for p in rows],
        "cell": [p.record.cell for p in rows],
        "store": [p.record.store for p in rows],
        "epoch": [p.record.epoch for p in rows],
        "host": [p.record.host for p in rows],
    }


def _take(parsed: Sequence[_Parsed], picked: list[int], results: list[Result | None]) -> set[int]:
    """Puts the picked records into the ledger; gives those that were new."""
    if not picked:
        return set()
    with transaction.atomic():
        with connection.cursor() as cursor:
            values = _columns(parsed, picked)
            values["quantity"] = [parsed[n].record.quantity for n in picked]
            cursor.execute(_SQL["take"], values)
            taken = dict(cursor.fetchall())
        know_owners(
            {
                (r.cell, r.store, r.epoch)
                for r in (parsed[n].record for n in picked)
                if r.metric is not Metric.API_REQUESTS  # routers own nothing
            }
        )
        for n in picked:
            if taken[n]:
                results[n] = Result.ACCEPTED
        _settle_known(parsed, [n for n in picked if not taken[n]], results)
    return {n for n in picked if taken[n]}


def _settle_known(parsed: Sequence[_Parsed], known: list[int], results: list[Result | None]) -> None:
    """Compares records whose key is taken with what stands."""
    if not known:
        return
    with connection.cursor() as cursor:
        cursor.execute(_SQL["compare"], _columns(parsed, known))
        standing = dict(cursor.fetchall())
    contradictions = []
    for n in known:
        if standing[n] == parsed[n].record.quantity:
            results[n] = Result.IDENTICAL
        else:
            results[n] = Result.CONFLICT
            contradictions.append((parsed[n], standing[n]))
    if contradictions:
        _alarm(contradictions)


def _alarm(contradictions: Sequence[tuple[_Parsed, int]]) -> None:
    rows = [p for p, _ in contradictions]
    values = _columns(rows, range(len(rows)))
    del values["n"]
    values["recorded"] = [recorded for _, recorded in contradictions]
    values["refused"] = [p.record.quantity for p in rows]
    with connection.cursor() as cursor:
        cursor.execute(_SQL["alarm"], values)
    for p, recorded in contradictions:
        _LOG.error(
            "meter record contradicts the ledger",
            tenant_id=p.record.tenant_id, cell=p.record.cell, host=p.record.host, minute=p.record.minute,
            metric=p.record.metric.value, recorded=recorded, refused=p.record.quantity,
        )  # fmt: skip
