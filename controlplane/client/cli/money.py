"""`clockhouse usage`, `clockhouse tenant`"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Annotated

import typer
from rich.console import Group
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.reading import day_of
from controlplane.client.cli.session import Session
from controlplane.client.documents import CostReport, Usage, UsageItem


class By(enum.Enum):
    """What usage is summed by."""

    DAY = "day"  # each day's metrics
    METRIC = "metric"  # each metric, over all days
    REGION_POLICY = "region_policy"  # each metric's region policies
    JOB = "job"  # each job's runs that ended

    @property
    def label(self) -> str:
        """As a table heads it."""
        return self.value.replace("_", " ")


def usage(
    session: Session,
    since: Annotated[str | None, typer.Option("--from", help="First day, UTC; 31 days if absent.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Last day; today if absent.")] = None,
    by: Annotated[By, typer.Option("--by", help="What the sums are by.")] = By.DAY,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="Instead: what doing the work cost the operator of Clockhouse, at the unit costs of its cost"
            " model. Not what you are charged.",
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="With --by job, at most this many; 0 for all.")
    ] = 1000,
) -> None:
    """Show what was used. What you are charged for it: `clockhouse forecast`, `clockhouse invoices`."""
    today = session.now.date()
    days = {"since": day_of(since, today), "until": day_of(until, today)}
    if cost:
        report = session.client.cost_reports.daily(**days)
        session.answer(report.raw, lambda: _cost_table(report))
    else:
        read = partial(session.client.usage.read, since=days["since"], until=days["until"], by=by.value)
        first = read()
        # By anything else there are as many sums as days and metrics; cut off, a day would be half a day.
        items = session.take(_items(first, read), limit if by is By.JOB else 0)
        raw = {**first.raw, "items": [item.raw for item in items], "next_cursor": None}
        if first.without_cells:
            gone = ", ".join(first.without_cells)
            session.say(f"[dim]Not counted by job: runs on {escape(gone)}, which is gone.[/dim]")
        session.answer(raw, lambda: _usage_table(first, items, by))


def _items(page: Usage, read: Callable[..., Usage]) -> Iterator[UsageItem]:
    """The items of a page and of those behind it, each page asked for as it is needed."""
    while True:
        yield from page.items
        if page.next_cursor is None:
            return
        page = read(cursor=page.next_cursor)


def _usage_table(usage: Usage, items: Sequence[UsageItem], by: By) -> object:
    if items and by is not By.DAY:
        made = tables.table(*([by.label] if by is By.JOB else []), "metric", "region policy", "quantity",
                            right=("quantity",))  # fmt: skip
        for item in items:
            job = [item.job_id or ""] if by is By.JOB else []
            made.add_row(*job, item.metric, item.region_policy or "–", f"{item.quantity:,}")
        return made
    metrics = sorted({item.metric for item in items})
    if not metrics:
        return f"Nothing was used from {usage.from_} to {usage.to}."
    by_day: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for item in items:
        by_day[str(item.day)][item.metric] += item.quantity
    made = tables.table("day", *metrics, right=metrics)
    for day in sorted(by_day):
        made.add_row(day, *(f"{by_day[day][metric]:,}" for metric in metrics))
    return made


def _cost_table(report: CostReport) -> object:
    made = tables.table(
        "day", "metric", "quantity", "unit cost", "per", "cost", right=("quantity", "per", "cost")
    )
    for day in report.items:
        for line in day.lines:
            made.add_row(
                str(day.day),
                line.metric,
                f"{line.quantity:,}",
                "–" if line.unit_price is None else _money(line.unit_price),
                "–" if line.per is None else f"{line.per:,}",
                _money(line.cost),
            )
        made.add_row(
            str(day.day), "[bold]all[/bold]", "", "", "", f"[bold]{_money(day.total)} {day.currency}[/bold]"
        )
    said = "What doing this work cost the operator; what you are charged: `clockhouse forecast`."
    return Group(made, f"From {report.from_} to {report.to}: {_money(report.total)}", f"[dim]{said}[/dim]")


def _money(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def tenant(session: Session) -> None:
    """Show whom the key belongs to, with quotas and placement."""
    found = session.client.tenant.get()
    placement = found.placement or {}
    session.answer(
        found.raw,
        lambda: tables.card(
            (
                ("tenant", found.tenant_id),
                ("name", f"{found.name} ({found.slug})"),
                ("state", tables.state(found.state)),
                ("lives in", f"{placement.get('cell')} ({placement.get('region')})" if placement else None),
                (
                    "default windows",
                    f"{found.default_window_seconds} s, once {found.default_once_window_seconds} s",
                ),
                *((name.replace("_", " "), f"{limit:,}") for name, limit in found.quotas.items()),
            )
        ),
    )
