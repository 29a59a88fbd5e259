"""Months of usage by the hour, rated as invoices are, and what FOCUS is to make of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from billing.charging.book import Book, Override, Period, segments
from billing.charging.charge import Statement, TaxRate, Used, charge, corrections_of
from billing.charging.prices import Graduated, Package, Price, Tier, Unit, Volume
from billing.exports.focus import Bill, Known, Payer, Row, focus_rows
from billing.exports.slices import Slice, slices_of
from billing.invoices.lines import Line, lines_of

OCTOBER = Period.month(2026, 10)
SEPTEMBER = Period.month(2026, 9)
PAYER = Payer(account_id="acct_1", tenant_id="tnt_1", name="Acme", currency="USD")
KNOWN = Known(issuer="Clockhouse", regions={"cell-1": "eu-1"})
RATED = datetime(2026, 11, 3, 12, 30, 15, tzinfo=UTC)
METRICS = ("job_runs", "egress_bytes", "stored_byte_minutes", "replicated_writes")
POLICIES = ("STRICT", "HOME_ASYNC", "")
CELLS = ("cell-1", "cell-2", "router")


@dataclass(frozen=True, kw_only=True)
class Month:
    """A tenant's October."""

    hours: list[tuple[datetime, str, str, str, int]]  # hour, metric, policy, cell, quantity
    books: list[Book]
    overrides: list[Override]
    taxes: tuple[TaxRate, ...] = ()
    late: int = 0  # job runs that came too late for September

    def used(self) -> list[Used]:
        return [Used(day=h.date(), metric=m, region_policy=p, quantity=q) for h, m, p, _, q in self.hours]

    def statement(self) -> Statement:
        corrections = []
        if self.late:
            late = [Used(day=SEPTEMBER.start, metric="job_runs", region_policy="STRICT", quantity=self.late)]
            corrections = corrections_of(SEPTEMBER, [], late, self.books, overrides=self.overrides)
        return charge(
            OCTOBER, self.used(), self.books, overrides=self.overrides, taxes=self.taxes,
            corrections=corrections, currency="USD",
        )  # fmt: skip

    def prices(self, line: Line) -> tuple[Price | None, Price | None]:
        cut = {s.start.isoformat(): s for s in segments(OCTOBER, self.books, self.overrides)}
        segment = cut[line.start]
        book = next(b for b in self.books if b.name == line.book)
        listed = book.prices.get((line.metric, line.region_policy)) or book.prices.get((line.metric, "*"))
        return segment.price(line.metric, line.region_policy), listed

    def slices(self, line: Line) -> list[Slice]:
        since, until = date.fromisoformat(line.start), date.fromisoformat(line.end)
        days: dict[tuple[date, str], int] = defaultdict(int)
        hours = []
        for hour, metric, policy, cell, quantity in self.hours:
            if (metric, policy) == (line.metric, line.region_policy) and since <= hour.date() < until:
                days[hour.date(), cell] += quantity
                hours.append((hour, cell, quantity))
        return slices_of([(day, cell, q) for (day, cell), q in days.items()], hours)

    def bill(self, number: str | None = "CH-000001") -> Bill:
        return Bill(
            number=number, start=OCTOBER.start, end=OCTOBER.end, lines=lines_of(self.statement()),
            rated_at=RATED,
        )  # fmt: skip

    def rows(self, number: str | None = "CH-000001") -> list[Row]:
        return list(focus_rows(self.bill(number), PAYER, KNOWN, prices=self.prices, used=self.slices))


def amounts() -> st.SearchStrategy[Decimal]:
    return st.integers(0, 10**10).map(lambda n: Decimal(n).scaleb(-8))


_PERS = st.sampled_from([1, 7, 1000, 1_000_000, 1024**3, 1024**3 * 43_800])


@st.composite
def _tiers(draw: st.DrawFn) -> tuple[Tier, ...]:
    ends = sorted(draw(st.sets(st.integers(1, 10**9), max_size=3)))
    return tuple(Tier(up_to=end, amount=draw(amounts()), per=draw(_PERS)) for end in [*ends, None])


@st.composite
def prices(draw: st.DrawFn) -> Price:
    model: Any = draw(
        st.one_of(
            st.builds(Unit, amount=amounts(), per=_PERS),
            st.builds(Package, amount=amounts(), size=st.integers(1, 10**6)),
            st.builds(Graduated, tiers=_tiers()),
            st.builds(Volume, tiers=_tiers()),
        )
    )
    return Price(model=model, included=draw(st.sampled_from([0, 0, 5, 100_000])))


@st.composite
def _books(draw: st.DrawFn) -> list[Book]:
    starts = [SEPTEMBER.start, *draw(st.lists(st.dates(OCTOBER.start, date(2026, 10, 30)), max_size=1))]
    return [
        Book(
            name=f"book {n}", currency="USD", effective_from=start,
            prices={(metric, "*"): draw(prices()) for metric in METRICS},
            minimum=draw(st.sampled_from([Decimal(0), Decimal(50)])),
        )
        for n, start in enumerate(starts)
    ]  # fmt: skip


@st.composite
def months(draw: st.DrawFn) -> Month:
    starts = st.integers(0, 31 * 24 - 1).map(lambda n: datetime(2026, 10, 1, tzinfo=UTC) + timedelta(hours=n))
    used = draw(
        st.dictionaries(
            st.tuples(starts, st.sampled_from(METRICS), st.sampled_from(POLICIES), st.sampled_from(CELLS)),
            st.integers(0, 10**11),
            max_size=12,
        )
    )
    overrides = []
    if draw(st.booleans()):
        start = draw(st.dates(OCTOBER.start, date(2026, 10, 31)))
        overrides = [Override(effective_from=start, prices={("job_runs", "STRICT"): draw(prices())})]
    taxes = draw(st.sampled_from([(), (TaxRate(name="VAT", rate=Decimal("0.19")),)]))
    return Month(
        hours=[(*key, quantity) for key, quantity in sorted(used.items())],
        books=draw(_books()),
        overrides=overrides,
        taxes=taxes,
        late=draw(st.sampled_from([0, 0, 123_456])),
    )
