"""Takes meter records into the ledger: each exactly once, whoever sends it how often.

A record that comes again is found to be identical; other content under its key is refused and
an alarm is kept. A tenant must have lived on the sending cell in that minute.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

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


class _Parsed(NamedTuple):
    tenant_id: uuid.UUID
    minute: datetime
    record: MeterRecord

    @property
    def key(self) -> tuple[Any, ...]:
        r = self.record
        return (self.tenant_id, self.minute, r.metric, r.region_policy, r.cell, r.store, r.epoch, r.host)


class _Reader:
    """Reads the records of a call: thousands of them, of few tenants and minutes."""

    def __init__(self) -> None:
        self._tenants: dict[str, uuid.UUID | None] = {}
        self._minutes: dict[str, datetime | None] = {}

    def read(self, n: int, record: MeterRecord) -> _Parsed:
        """Record number `n`, or `MalformedRecord`."""
        try:
            tenant_id = self._tenants[record.tenant_id]
        except KeyError:
            tenant_id = self._tenants[record.tenant_id] = decode(TENANT, record.tenant_id)
        try:
            minute = self._minutes[record.minute]
        except KeyError:
            minute = self._minutes[record.minute] = _minute(record.minute)
        if tenant_id is None:
            raise MalformedRecord(f"/records/{n}/tenant_id: not a tenant's id")
        if minute is None:
            raise MalformedRecord(f"/records/{n}/minute: not a whole minute in UTC")
        if not 0 <= record.quantity <= _BIGGEST_QUANTITY:
            raise MalformedRecord(f"/records/{n}/quantity: not a count")
        if not 0 <= record.store <= 255 or not 0 <= record.epoch <= _BIGGEST:
            raise MalformedRecord(f"/records/{n}: store or epoch out of range")
        if not (0 < len(record.host) <= 200 and len(record.region_policy) <= 20):
            raise MalformedRecord(f"/records/{n}: host or region_policy too long or missing")
        return _Parsed(tenant_id, minute, record)


def _minute(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:00Z").replace(tzinfo=UTC)
    except ValueError:
        return None


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


def _refusal(tenures: Sequence[Tenure], cell: str | None, minute: datetime, now: datetime) -> Result | None:
    """Why a tenant's records of a minute are not taken."""
    if minute < now - OLDEST:
        return Result.TOO_OLD
    if minute > now + AHEAD:
        return Result.TOO_NEW
    return None if lived(tenures, cell, minute) else Result.NOT_PLACED


def ingest(records: Sequence[MeterRecord], *, anywhere: bool = False) -> list[Result]:
    """What became of each record, in order. Raises `MalformedRecord` before anything is taken.

    `anywhere`: the sender is no cell (a router); the tenant must only have lived somewhere.
    """
    reader = _Reader()
    parsed = [reader.read(n, record) for n, record in enumerate(records)]
    if not parsed:
        return []
    now = timezone.now()
    tenures = _tenures(parsed)
    results: list[Result | None] = [None] * len(parsed)
    first: dict[tuple[Any, ...], int] = {}
    repeats: list[tuple[int, int]] = []
    refusals: dict[tuple[uuid.UUID, str | None, datetime], Result | None] = {}
    for n, p in enumerate(parsed):
        cell = None if anywhere else p.record.cell
        place = (p.tenant_id, cell, p.minute)
        if place not in refusals:
            refusals[place] = _refusal(tenures.get(p.tenant_id, ()), cell, p.minute, now)
        if (refusal := refusals[place]) is not None:
            results[n] = refusal
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


def _columns(parsed: Sequence[_Parsed], picked: Sequence[int]) -> dict[str, str]:
    """Columns as literals of PostgreSQL's arrays: a driver's own lists take longer than the statement."""
    rows = [parsed[n].record for n in picked]
    return {
        "n": _numbers(picked),
        "tenant_id": _words(str(parsed[n].tenant_id) for n in picked),
        "minute": _words(r.minute for r in rows),
        "metric": _words(r.metric.value for r in rows),
        "region_policy": _words(r.region_policy for r in rows),
        "cell": _words(r.cell for r in rows),
        "store": _numbers(r.store for r in rows),
        "epoch": _numbers(r.epoch for r in rows),
        "host": _words(r.host for r in rows),
    }


def _numbers(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _words(values: Iterable[str]) -> str:
    quoted: dict[str, str] = {}
    parts = []
    for value in values:
        part = quoted.get(value)
        if part is None:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            part = quoted[value] = f'"{escaped}"'
        parts.append(part)
    return "{" + ",".join(parts) + "}"


def _take(parsed: Sequence[_Parsed], picked: list[int], results: list[Result | None]) -> set[int]:
    """Puts the picked records into the ledger; gives those that were new."""
    if not picked:
        return set()
    with transaction.atomic():
        with connection.cursor() as cursor:
            values = _columns(parsed, picked)
            values["quantity"] = _numbers(parsed[n].record.quantity for n in picked)
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
    values["recorded"] = _numbers(recorded for _, recorded in contradictions)
    values["refused"] = _numbers(p.record.quantity for p in rows)
    with connection.cursor() as cursor:
        cursor.execute(_SQL["alarm"], values)
    for p, recorded in contradictions:
        _LOG.error(
            "meter record contradicts the ledger",
            tenant_id=p.record.tenant_id, cell=p.record.cell, host=p.record.host, minute=p.record.minute,
            metric=p.record.metric.value, recorded=recorded, refused=p.record.quantity,
        )  # fmt: skip
