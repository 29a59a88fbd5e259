"""Priced quantities, cut into hours and cells so that the pieces add up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Decimal

from billing.charging.money import EXACT
from billing.exports.columns import QUANTITY_SCALE
from billing.months import DAY, HOUR, start_of

_QUANTUM = Decimal(1).scaleb(-QUANTITY_SCALE)
#: Digits behind the point to which an amount is divided; the last piece takes what is left.
_SHARE = Decimal(1).scaleb(-12)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """What was used of one metric under one policy in a half-open time; `cell` None: nobody says where."""

    start: datetime
    end: datetime
    cell: str | None
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A slice's share of one priced part."""

    slice: Slice
    consumed: int  # units of the metric
    priced: Decimal  # in units of the price
    billed: Decimal  # of the part's amount


def slices_of(
    days: Iterable[tuple[date, str, int]], hours: Iterable[tuple[datetime, str, int]]
) -> list[Slice]:
    """Days (day, cell, quantity) as hours (its start, cell, quantity), in order of time and cell. A day
    whose hours do not add up to it stays a day: what was charged is what days say."""
    by_day: dict[tuple[date, str], list[tuple[datetime, int]]] = {}
    for hour, cell, quantity in hours:
        by_day.setdefault((hour.date(), cell), []).append((hour, quantity))
    found = []
    for day, cell, quantity in days:
        known = by_day.get((day, cell), [])
        if known and sum(q for _, q in known) == quantity and all(q >= 0 for _, q in known):
            found += [Slice(start=h, end=h + HOUR, cell=cell, quantity=q) for h, q in known if q]
        elif quantity:
            found.append(Slice(start=start_of(day), end=start_of(day + DAY), cell=cell, quantity=quantity))
    return sorted(found, key=lambda s: (s.start, s.cell or ""))


def cut(slices: Sequence[Slice], parts: Sequence[tuple[int, int, int, Decimal]]) -> Iterator[list[Piece]]:
    """For each part (units it stands for, units or packages priced, units or packages its price is for,
    amount to be paid) the pieces of it, in time: earlier use fills earlier parts.

    The pieces' units, priced quantities and amounts add up to the part's, whatever was rounded. Raises
    ValueError where the parts are not of what the slices hold.
    """
    if sum(s.quantity for s in slices) != sum(part[0] for part in parts):
        raise ValueError("the parts are of another quantity than the slices")
    left = list(reversed([(s, s.quantity) for s in slices]))
    for consumed, priced, per, amount in parts:
        pieces: list[Piece] = []
        done, before_priced, before_billed = 0, Decimal(0), Decimal(0)
        while done < consumed:
            piece, quantity = left.pop()
            taken = min(quantity, consumed - done)
            if taken < quantity:
                left.append((piece, quantity - taken))
            done += taken
            # A package counts where it was begun; of other prices `priced` is `consumed`.
            until = -(-done * priced // consumed)
            reached = _divided(until, per)
            billed = amount if done == consumed else _shared(amount, done, consumed)
            pieces.append(
                Piece(
                    slice=piece,
                    consumed=taken,
                    priced=EXACT.subtract(reached, before_priced),
                    billed=EXACT.subtract(billed, before_billed),
                )
            )
            before_priced, before_billed = reached, billed
        yield pieces


def _divided(quantity: int, per: int) -> Decimal:
    """A quantity in units of its price."""
    exact = EXACT.divide(Decimal(quantity), Decimal(per))
    return exact.quantize(_QUANTUM, rounding=ROUND_HALF_EVEN, context=EXACT)


def _shared(amount: Decimal, done: int, whole: int) -> Decimal:
    exact = EXACT.divide(EXACT.multiply(amount, Decimal(done)), Decimal(whole))
    return exact.quantize(_SHARE, rounding=ROUND_HALF_EVEN, context=EXACT)
