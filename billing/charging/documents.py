"""Prices as documents: what operators write, what is stored, what is shown. Amounts are text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from billing.charging.book import ANY_POLICY, Key
from billing.charging.prices import Graduated, Model, Package, Price, Tier, Unit, Volume, faults

MODELS = ("unit", "package", "graduated", "volume")
POLICIES = (ANY_POLICY, "HOME_ASYNC", "STRICT", "SINGLE_REGION")
#: Which fields each model has beside metric, region_policy, model and included.
_FIELDS = {
    "unit": {"amount", "per"},
    "package": {"amount", "size"},
    "graduated": {"tiers"},
    "volume": {"tiers"},
}
_OPTIONAL = {"per"}

Fault = tuple[str, str]  # (JSON pointer, what is wrong)


def price_of(document: Mapping[str, Any]) -> Price:
    """The price that a faultless document stands for."""
    return Price(model=_model(document), included=document.get("included", 0))


def prices_of(documents: Sequence[Mapping[str, Any]]) -> dict[Key, Price]:
    """All prices of a book or contract."""
    return {(d["metric"], d.get("region_policy", ANY_POLICY)): price_of(d) for d in documents}


def normal(document: Mapping[str, Any]) -> dict[str, Any]:
    """A faultless document with everything said that it leaves out, as it is stored."""
    found: dict[str, Any] = {
        "metric": document["metric"],
        "region_policy": document.get("region_policy", ANY_POLICY),
        "model": document["model"],
        "included": document.get("included", 0),
    }
    match _model(document):
        case Unit(amount=amount, per=per):
            found |= {"amount": shown(amount), "per": per}
        case Package(amount=amount, size=size):
            found |= {"amount": shown(amount), "size": size}
        case Graduated(tiers=tiers) | Volume(tiers=tiers):
            found["tiers"] = [
                {"up_to": tier.up_to, "amount": shown(tier.amount), "per": tier.per} for tier in tiers
            ]
    return found


def shown(amount: Decimal) -> str:
    """An amount as text: plain digits, nothing behind the last that counts."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def faults_of(documents: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> list[Fault]:
    """Everything wrong with the prices of a book, with pointers into `/prices`."""
    found: list[Fault] = []
    seen: set[Key] = set()
    for i, document in enumerate(documents):
        place = f"/prices/{i}"
        before = len(found)
        found += _shape_faults(place, document, metrics)
        key = (str(document.get("metric")), str(document.get("region_policy", ANY_POLICY)))
        if key in seen:
            found.append((place, f"there is another price of {key[0]} under {key[1]}"))
        seen.add(key)
        if len(found) == before:
            found += [(place, text) for text in faults(price_of(document))]
    return found


def _shape_faults(place: str, document: Mapping[str, Any], metrics: Sequence[str]) -> list[Fault]:
    found: list[Fault] = []
    if document.get("metric") not in metrics:
        found.append((f"{place}/metric", f"one of {', '.join(metrics)}"))
    if document.get("region_policy", ANY_POLICY) not in POLICIES:
        found.append((f"{place}/region_policy", f"one of {', '.join(POLICIES)}"))
    model = document.get("model")
    if model not in MODELS:
        return [*found, (f"{place}/model", f"one of {', '.join(MODELS)}")]
    wanted = _FIELDS[str(model)]
    given = set(document) - {"metric", "region_policy", "model", "included"}
    found += [(f"{place}/{name}", f"a {model} price has none") for name in sorted(given - wanted)]
    found += [(f"{place}/{name}", "is missing") for name in sorted(wanted - given - _OPTIONAL)]
    return found


def _model(document: Mapping[str, Any]) -> Model:
    match document["model"]:
        case "unit":
            return Unit(amount=Decimal(document["amount"]), per=document.get("per", 1))
        case "package":
            return Package(amount=Decimal(document["amount"]), size=document["size"])
        case "graduated":
            return Graduated(tiers=_tiers(document))
        case _:
            return Volume(tiers=_tiers(document))


def _tiers(document: Mapping[str, Any]) -> tuple[Tier, ...]:
    return tuple(
        Tier(up_to=tier.get("up_to"), amount=Decimal(tier["amount"]), per=tier.get("per", 1))
        for tier in document["tiers"]
    )
