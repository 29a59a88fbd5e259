"""An invoice's lines as they are stored, and as bytes that can be compared. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from billing.charging.charge import ADJUSTMENT, CARRIED_OVER, MINIMUM, TAX, ChargeLine, Statement
from billing.charging.documents import shown
from billing.charging.money import quantize

_ANY_TIER = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A numbered line. Amounts are text: equal lines are equal bytes."""

    n: int
    kind: str
    metric: str
    region_policy: str
    start: str
    end: str
    tier: int | None
    quantity: int
    priced: int | None
    unit_amount: str
    per: int | None
    book: str
    exact: str
    amount: str


def lines_of(statement: Statement) -> list[Line]:
    """A statement's lines, in its order, from 1."""
    return [_line(n, line, statement.currency) for n, line in enumerate(statement.lines, 1)]


def _line(n: int, line: ChargeLine, currency: str) -> Line:
    part = line.part
    return Line(
        n=n,
        kind=line.kind,
        metric=line.metric,
        region_policy=line.region_policy,
        start=line.start.isoformat(),
        end=line.end.isoformat(),
        tier=None if part is None else part.tier,
        quantity=line.consumed,
        priced=None if part is None else part.quantity,
        unit_amount="" if part is None else shown(part.unit_amount),
        per=None if part is None else part.per,
        book=line.book or "",
        exact=shown(line.exact),
        amount=f"{quantize(line.amount, currency):f}",
    )


def stored_line(row: Any, currency: str) -> Line:
    """The same line from its row (`InvoiceLine`)."""
    return Line(
        n=row.n,
        kind=row.kind,
        metric=row.metric,
        region_policy=row.region_policy,
        start=row.start.isoformat(),
        end=row.end.isoformat(),
        tier=row.tier,
        quantity=int(row.quantity),
        priced=None if row.priced is None else int(row.priced),
        unit_amount=row.unit_amount,
        per=row.per,
        book=row.book,
        exact=row.exact,
        amount=f"{quantize(row.amount, currency):f}",
    )


def canonical(lines: Sequence[Line]) -> bytes:
    """The lines as bytes: the same lines are the same bytes, for ever."""
    return json.dumps([asdict(line) for line in lines], sort_keys=True, separators=(",", ":")).encode()


def digest(lines: Sequence[Line]) -> str:
    """SHA-256 of `canonical`, in hexadecimal."""
    return hashlib.sha256(canonical(lines)).hexdigest()


_METRICS = {
    "job_runs": "Job runs",
    "run_attempts": "Attempts of runs",
    "workflow_steps": "Workflow steps",
    "history_bytes": "Workflow history, bytes",
    "replicated_writes": "Writes replicated to other regions",
    "pending_timer_minutes": "Waiting timers, timer minutes",
    "stored_byte_minutes": "Storage, byte minutes",
    "api_requests": "API requests",
    "egress_bytes": "Bodies sent to targets, bytes",
}
_POLICIES = {"HOME_ASYNC": "HOME_ASYNC", "STRICT": "STRICT", "SINGLE_REGION": "SINGLE_REGION"}


def described(line: Line) -> str:
    """What a line is for, in words."""
    if line.kind == TAX:
        return line.metric
    if line.kind == MINIMUM:
        return "Up to the agreed minimum"
    name = _METRICS.get(line.metric, line.metric.replace("_", " "))
    if policy := _POLICIES.get(line.region_policy, ""):
        name = f"{name}, {policy}"
    if line.metric == CARRIED_OVER:
        return f"Carried over from the invoice for {date.fromisoformat(line.start):%B %Y}"
    if line.kind == ADJUSTMENT:
        late = name if line.metric else "what the agreed minimum had covered"
        return f"Late for {date.fromisoformat(line.start):%B %Y}: {late}"
    if line.tier == _ANY_TIER:
        return f"{name}, included"
    return f"{name}, tier {line.tier + 1}" if line.tier else name


def unit_price(line: Line) -> str:
    """`4.47 per 1,000,000`, or nothing."""
    if not line.unit_amount or line.tier == _ANY_TIER:
        return ""
    return line.unit_amount if line.per in (None, 1) else f"{line.unit_amount} per {line.per:,}"


def amount_of(line: Line) -> Decimal:
    """What is to be paid of it."""
    return Decimal(line.amount)
