"""The life of an invoice, as a table. Money that was asked for is never changed: what was wrong
is put right by a credit note."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class InvoiceState(enum.StrEnum):
    """How an invoice is."""

    DRAFT = "DRAFT"  # recomputed until its period is closed; has no number
    FINAL = "FINAL"  # numbered and immutable; to be paid
    PAID = "PAID"  # settled
    VOID = "VOID"  # not to be paid; keeps its number
    UNCOLLECTIBLE = "UNCOLLECTIBLE"  # given up; may still be paid


@dataclass(frozen=True, kw_only=True, slots=True)
class InvoiceTransition:
    """A named move. A source of None means that there is none yet."""

    name: str
    sources: frozenset[InvoiceState | None]
    destination: InvoiceState
    comment: str


def _move(name: str, sources: set[InvoiceState | None], to: InvoiceState, comment: str) -> InvoiceTransition:
    return InvoiceTransition(name=name, sources=frozenset(sources), destination=to, comment=comment)


S = InvoiceState
TRANSITIONS: tuple[InvoiceTransition, ...] = (
    _move("open", {None}, S.DRAFT, "a period has begun to be charged"),
    _move("recompute", {S.DRAFT}, S.DRAFT, "the same lines from the same usage and prices"),
    _move("finalize", {S.DRAFT}, S.FINAL, "the period is closed; takes the next number"),
    _move("pay", {S.FINAL, S.UNCOLLECTIBLE}, S.PAID, "paid in full, or nothing was to be paid"),
    _move("void", {S.FINAL, S.UNCOLLECTIBLE}, S.VOID, "wrong as a whole; another may replace it"),
    _move("give_up", {S.FINAL}, S.UNCOLLECTIBLE, "nobody expects the money any more"),
)
#: States in which an invoice has a number and its lines never change.
NUMBERED: frozenset[InvoiceState] = frozenset({S.FINAL, S.PAID, S.VOID, S.UNCOLLECTIBLE})
#: States in which a credit note may be written for it.
CREDITABLE: frozenset[InvoiceState] = frozenset({S.FINAL, S.PAID, S.UNCOLLECTIBLE})

_BY_NAME = {t.name: t for t in TRANSITIONS}


def allowed(name: str, state: InvoiceState | None) -> bool:
    """Whether an invoice in `state` may make the named move."""
    return state in _BY_NAME[name].sources


def destination(name: str) -> InvoiceState:
    """Where the named move leads."""
    return _BY_NAME[name].destination


def sources(name: str) -> frozenset[InvoiceState | None]:
    """From where the named move begins."""
    return _BY_NAME[name].sources
