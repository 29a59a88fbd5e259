"""Price models: what a quantity comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from billing.charging.money import EXACT


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some of a quantity at one unit price. The exact amount is `quantity * unit_amount / per`."""

    tier: int  # from 0; the included part is -1
    quantity: int  # what is priced: units, or packages
    consumed: int  # units of the metric it stands for
    unit_amount: Decimal
    per: int

    @property
    def amount(self) -> Decimal:
        """The exact amount."""
        return EXACT.divide(EXACT.multiply(Decimal(self.quantity), self.unit_amount), Decimal(self.per))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """Up to so many units (None: no end), `amount` for each `per` of them."""

    up_to: int | None
    amount: Decimal
    per: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """`amount` for each `per` units, fractions of `per` included."""

    amount: Decimal
    per: int = 1

    def parts(self, quantity: int, share: Fraction) -> list[Part]:
        """What a quantity comes to; `share` is the part of a whole period it was used in."""
        return [Part(tier=0, quantity=quantity, consumed=quantity, unit_amount=self.amount, per=self.per)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """`amount` for each package of `size` units that was begun."""

    amount: Decimal
    size: int

    def parts(self, quantity: int, share: Fraction) -> list[Part]:
        """See `Unit.parts`."""
        packages = -(-quantity // self.size)
        return [Part(tier=0, quantity=packages, consumed=quantity, unit_amount=self.amount, per=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Graduated:
    """Each unit at the price of the tier it falls into."""

    tiers: tuple[Tier, ...]

    def parts(self, quantity: int, share: Fraction) -> list[Part]:
        """See `Unit.parts`."""
        found, before = [], 0
        for number, tier in enumerate(self.tiers):
            end = _limit(tier, share)
            inside = (quantity if end is None else min(quantity, end)) - before
            if inside > 0:
                found.append(
                    Part(
                        tier=number,
                        quantity=inside,
                        consumed=inside,
                        unit_amount=tier.amount,
                        per=tier.per,
                    )
                )
                before += inside
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """All units at the price of the tier that the quantity reaches."""

    tiers: tuple[Tier, ...]

    def parts(self, quantity: int, share: Fraction) -> list[Part]:
        """See `Unit.parts`."""
        for number, tier in enumerate(self.tiers):
            end = _limit(tier, share)
            if end is None or quantity <= end:
                return [
                    Part(
                        tier=number,
                        quantity=quantity,
                        consumed=quantity,
                        unit_amount=tier.amount,
                        per=tier.per,
                    )
                ]
        raise ValueError("the last tier has an end")


Model: TypeAlias = Unit | Package | Graduated | Volume


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """A model, and what is free before it begins to count (units in a whole period)."""

    model: Model
    included: int = 0

    def parts(self, quantity: int, share: Fraction, *, included: int | None = None) -> list[Part]:
        """What a quantity comes to, the included part first. `included` replaces what `share` of
        a period has, where the parts of a period are to add up."""
        free = min(quantity, int(self.included * share) if included is None else included)
        parts = self.model.parts(quantity - free, share) if quantity > free else []
        if free:
            zero = Part(tier=-1, quantity=free, consumed=free, unit_amount=Decimal(0), per=1)
            parts = [zero, *parts]
        return parts


def faults(price: Price) -> list[str]:
    """What is wrong with a price; nothing, if it can be used."""
    found = []
    if price.included < 0:
        found.append("included is below 0")
    match price.model:
        case Unit(amount=amount, per=per):
            found += _amount_faults("", amount, per)
        case Package(amount=amount, size=size):
            found += _amount_faults("", amount, size)
        case Graduated(tiers=tiers) | Volume(tiers=tiers):
            found += _tier_faults(tiers)
    return found


def _tier_faults(tiers: Sequence[Tier]) -> list[str]:
    if not tiers:
        return ["there are no tiers"]
    found, before = [], 0
    for number, tier in enumerate(tiers, 1):
        found += _amount_faults(f"tier {number}: ", tier.amount, tier.per)
        last = number == len(tiers)
        if last != (tier.up_to is None):
            found.append(f"tier {number}: {'the last tier has' if last else 'only the last tier has no'} end")
        elif tier.up_to is not None:
            if tier.up_to <= before:
                found.append(f"tier {number}: ends at {tier.up_to}, not behind the one before")
            before = tier.up_to
    return found


def _amount_faults(place: str, amount: Decimal, per: int) -> list[str]:
    found = []
    if not amount.is_finite() or amount < 0:
        found.append(f"{place}the amount is no number from 0")
    if per < 1:
        found.append(f"{place}is not for one unit or more")
    return found


def _limit(tier: Tier, share: Fraction) -> int | None:
    return None if tier.up_to is None else int(tier.up_to * share)
