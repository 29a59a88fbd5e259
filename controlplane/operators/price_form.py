"""Prices as operators type them: rows of a form to documents of prices, and back. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from controlplane.errors import Fault, Invalid

_AMOUNT = re.compile(r"(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,10})?")
_WHOLE = re.compile(r"[0-9]{1,18}")
_TIER = re.compile(r"(\*|[0-9][0-9 _,]{0,24})\s*:\s*([0-9.]+)(?:\s*/\s*([0-9][0-9 _,]{0,24}))?")
FIELDS = ("metric", "policy", "model", "included", "amount", "per", "tiers")
#: Rows that are left empty for further prices.
SPARE = 3
_MOST = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A price as typed."""

    n: int
    metric: str = ""
    policy: str = "*"
    model: str = "unit"
    included: str = ""
    amount: str = ""
    per: str = ""  # of a package: its size
    tiers: str = ""

    @property
    def empty(self) -> bool:
        return not self.metric


@dataclass(kw_only=True)
class Typed:
    """A form of prices: what was typed beside its rows, and what is wrong."""

    values: dict[str, str]
    rows: list[Row]
    faults: list[str] = field(default_factory=list)


def rows_of(prices: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Stored prices as rows, with some to spare."""
    found = [_row(n, price) for n, price in enumerate(prices)]
    return [*found, *(Row(n=len(found) + i) for i in range(SPARE))]


def _row(n: int, price: Mapping[str, Any]) -> Row:
    per = price.get("size") if price["model"] == "package" else price.get("per")
    return Row(
        n=n,
        metric=price["metric"],
        policy=price.get("region_policy", "*"),
        model=price["model"],
        included=str(price.get("included") or ""),
        amount=str(price.get("amount", "")),
        per=str(per or ""),
        tiers="\n".join(
            f"{'*' if tier['up_to'] is None else tier['up_to']}: {tier['amount']}"
            + (f" / {tier['per']}" if tier.get("per", 1) != 1 else "")
            for tier in price.get("tiers", ())
        ),
    )


def rows_typed(form: Mapping[str, str]) -> list[Row]:
    """The rows of a form that was sent, again with some to spare."""
    numbers = sorted(
        int(n) for name in form if (n := name.removeprefix("metric-")) != name and _WHOLE.fullmatch(n)
    )[:_MOST]
    typed = [
        {name: form.get(f"{name}-{number}", "").strip()[:2_000] for name in FIELDS} for number in numbers
    ]
    kept = [each for each in typed if each["metric"]]
    found = [Row(n=n, **each) for n, each in enumerate(kept)]
    return [*found, *(Row(n=len(found) + i) for i in range(SPARE))]


def prices_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The prices that rows say. Raises `Invalid` with every fault, by row."""
    faults: list[Fault] = []
    found = [_price(row, faults) for row in rows if not row.empty]
    if faults:
        raise Invalid(faults)
    return found


def _price(row: Row, faults: list[Fault]) -> dict[str, Any]:
    price: dict[str, Any] = {"metric": row.metric, "region_policy": row.policy or "*", "model": row.model}
    place = f"/prices/{row.n}"

    def whole(name: str, text: str, otherwise: int) -> int:
        plain = re.sub(r"[ _,]", "", text)
        if not plain:
            return otherwise
        if not _WHOLE.fullmatch(plain):
            faults.append(Fault(pointer=f"{place}/{name}", detail=f"{text} is no whole number"))
            return otherwise
        return int(plain)

    price["included"] = whole("included", row.included, 0)
    if row.model in ("graduated", "volume"):
        price["tiers"] = _tiers(place, row.tiers, faults)
        return price
    if not _AMOUNT.fullmatch(row.amount):
        faults.append(Fault(pointer=f"{place}/amount", detail="an amount such as 4.47"))
    price["amount"] = row.amount
    price["size" if row.model == "package" else "per"] = whole("per", row.per, 1)
    return price


def _tiers(place: str, text: str, faults: list[Fault]) -> list[dict[str, Any]]:
    tiers = []
    for line in (each.strip() for each in re.split(r"[\n;]", text)):
        if not line:
            continue
        read = _TIER.fullmatch(line)
        if read is None or not _AMOUNT.fullmatch(read[2]):
            detail = f"{line[:60]}: a tier is written as 1000000: 4.47 / 1000, the last one as *: 3.90 / 1000"
            faults.append(Fault(pointer=f"{place}/tiers", detail=detail))
            continue
        up_to = None if read[1] == "*" else int(re.sub(r"[ _,]", "", read[1]))
        tiers.append({"up_to": up_to, "amount": read[2], "per": int(re.sub(r"[ _,]", "", read[3] or "1"))})
    if not tiers and not faults:
        faults.append(Fault(pointer=f"{place}/tiers", detail="at least one tier is needed"))
    return tiers


def amount_of(text: str, pointer: str) -> str:
    """An amount as text; nothing is 0. Raises `Invalid`."""
    if not text:
        return "0"
    if not _AMOUNT.fullmatch(text):
        raise Invalid([Fault(pointer=pointer, detail="an amount such as 20 or 20.00")])
    return text


def day_of(text: str, pointer: str) -> date:
    """A day. Raises `Invalid`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Invalid([Fault(pointer=pointer, detail="a day: YYYY-MM-DD")]) from None


def faults_in_words(refused: Invalid, rows: Sequence[Row]) -> list[str]:
    """Faults as sentences that name the row by its number and metric."""
    found = []
    for fault in refused.faults:
        parts = fault.pointer.strip("/").split("/")
        if parts[0] == "prices" and len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) < len(rows):
            row = rows[int(parts[1])]
            where = f"Price {row.n + 1} ({row.metric.replace('_', ' ')})"
            found.append(f"{where}{', ' + ' '.join(parts[2:]) if parts[2:] else ''}: {fault.detail}")
        else:
            found.append(f"{parts[0].replace('_', ' ').capitalize() or 'It'}: {fault.detail}")
    return found


def seal_of(*said: Any) -> str:
    """What a preview was of: the same prices give the same text."""
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
