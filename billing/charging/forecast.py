"""What a month will come to, and what a schedule adds to it. Pure; `today` is an argument."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.charging.book import Book, Override, Period
from billing.charging.charge import Correction, Used, charge, corrections_of
from billing.charging.money import EXACT

#: Days that are over, by whose mean the days to come are guessed.
LOOKS_BACK = 7


def expected(period: Period, used: Sequence[Used], today: date) -> list[Used]:
    """The usage of a whole period: what was used, and for today and each day to come the mean of
    the last (up to) seven days that are over, idle ones included: as many as there are since the
    first usage that is known. Today counts at least what it has by now.

    Usage from before the period helps to guess, so that its first days are no blind ones.
    """
    inside = [u for u in used if period.start <= u.day < period.end]
    first = max(today, period.start)
    if today >= period.end:
        return inside
    over = [u for u in used if today - timedelta(days=LOOKS_BACK) <= u.day < today]
    days = min(LOOKS_BACK, (today - min(u.day for u in used)).days) if over else 0
    found = [u for u in inside if u.day < first]
    today_has = {(u.metric, u.region_policy): u.quantity for u in inside if u.day == first}
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for u in over:
        totals[u.metric, u.region_policy] += u.quantity
    for key in sorted(totals.keys() | today_has.keys()):
        mean = round(Fraction(totals.get(key, 0), days)) if days else today_has.get(key, 0)
        for offset in range((period.end - first).days):
            day = first + timedelta(days=offset)
            quantity = max(mean, today_has.get(key, 0)) if offset == 0 else mean
            if quantity:
                found.append(Used(day=day, metric=key[0], region_policy=key[1], quantity=quantity))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """What a schedule is expected to do in a period."""

    occurrences: int
    attempts_per_run: Fraction
    region_policy: str

    @property
    def attempts(self) -> int:
        """Attempts of all its runs, to the nearest."""
        return round(self.occurrences * self.attempts_per_run)


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """What a schedule adds to a period's bill, before taxes. `exact` is unrounded."""

    parts: tuple[Correction, ...]
    exact: Decimal
    currency: str


def schedule_adds(
    period: Period,
    planned: Planned,
    used: Sequence[Used],
    books: Sequence[Book],
    *,
    overrides: Sequence[Override] = (),
    currency: str | None = None,
) -> Added:
    """Occurrences and attempts at the prices that hold behind `used`, the usage of the same period
    without it: what is still included, and which tier it reaches, count as they will on the invoice."""
    if planned.occurrences < 0 or planned.attempts_per_run < 0:
        raise ValueError("nothing happens less than never")
    extra = [
        Used(day=period.start, metric=metric, region_policy=planned.region_policy, quantity=quantity)
        for metric, quantity in (("job_runs", planned.occurrences), ("run_attempts", planned.attempts))
        if quantity
    ]
    parts = corrections_of(period, used, extra, books, overrides=overrides, currency=currency)
    known = charge(period, (), books, currency=currency).currency
    exact = Decimal(0)
    for part in parts:
        exact = EXACT.add(exact, part.exact)
    return Added(parts=tuple(parts), exact=exact, currency=known)


def attempts_per_run(used: Sequence[Used]) -> Fraction:
    """Attempts a run took, as observed; 1 where nothing was."""
    runs = sum(u.quantity for u in used if u.metric == "job_runs")
    attempts = sum(u.quantity for u in used if u.metric == "run_attempts")
    return max(Fraction(attempts, runs), Fraction(1)) if runs and attempts else Fraction(1)
