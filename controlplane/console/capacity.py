"""What a target can take, drawn: its limit, minute by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MINUTES = 60
_WORDS = {
    "CLOSED": ("closed", "it is called as its limit allows"),
    "OPEN": ("open", "it is not called"),
    "HALF_OPEN": ("half open", "one call at a time, to see whether it works"),
}
_LOOKS = {"CLOSED": "good", "OPEN": "bad", "HALF_OPEN": "wait"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One minute; places in percent."""

    x: float
    height: float
    look: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """The target page's picture of a limit."""

    allowed: int
    usable: int
    parked: int
    breaker: str
    reason: str | None
    until: str | None
    lowest: int
    highest: int
    bars: tuple[Bar, ...]

    @property
    def breaker_word(self) -> str:
        return _WORDS[self.breaker][0]

    @property
    def breaker_means(self) -> str:
        return _WORDS[self.breaker][1]


def capacity(health: Mapping[str, Any]) -> Capacity | None:
    """From a target's health; None where nobody has called it lately."""
    limit = health.get("limit")
    if not limit:
        return None
    minutes = [minute for minute in limit["history"] if minute["limit"] is not None][-_MINUTES:]
    lows = [minute["limit_lowest"] for minute in minutes]
    highest = max([1, *(minute["limit"] for minute in minutes)])
    width = 100 / _MINUTES
    return Capacity(
        allowed=limit["allowed"],
        usable=limit["usable"],
        parked=limit["parked"],
        breaker=limit["breaker"],
        reason=limit["reason"],
        until=limit["until"],
        lowest=min(lows, default=0),
        highest=highest,
        bars=tuple(
            Bar(
                x=round(100 - (len(minutes) - index) * width, 3),
                height=round(max(3.0, minute["limit_lowest"] / highest * 100), 2),
                look=_look(minute, health["latency_slo_ms"]),
                title=_title(minute),
            )
            for index, minute in enumerate(minutes)
        ),
    )


def _look(minute: Mapping[str, Any], promised_ms: int) -> str:
    if minute["breaker"] != "CLOSED":
        return _LOOKS[minute["breaker"]]
    slow = minute["call_mean_ms"] is not None and minute["call_mean_ms"] > promised_ms
    return "wait" if slow or minute["parked"] else "good"


def _title(minute: Mapping[str, Any]) -> str:
    at = str(minute["minute"])[11:16]
    text = f"{at}: {minute['limit_lowest']} calls at once"
    if minute["calls"]:
        text += f", {minute['calls']} calls of {minute['call_mean_ms']:.0f} ms"
    if minute["parked"]:
        text += f", {minute['parked']} put aside"
    return text
