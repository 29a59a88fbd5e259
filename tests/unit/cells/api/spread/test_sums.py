"""Figures of several stores, put together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cells.api.spread.feeds import in_order, place_of, places_in
from cells.api.spread.sums import by_minute
from cells.domain.crowding import PARTS, Crowded, Statement, together

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_minutes_are_added_and_the_most_is_the_most_of_all() -> None:
    own = [{"minute": NOON, "started": 2, "lag_sum_ms": 10, "lag_max_ms": 7, "lag_le": [1, 1]}]
    there = [
        {"minute": NOON - MINUTE, "started": 1, "lag_sum_ms": 1, "lag_max_ms": 1, "lag_le": [1, 0]},
        {"minute": NOON, "started": 3, "lag_sum_ms": 5, "lag_max_ms": 9, "lag_le": [0, 2]},
    ]
    assert by_minute([*own, *there]) == [
        there[0],
        {"minute": NOON, "started": 5, "lag_sum_ms": 15, "lag_max_ms": 9, "lag_le": [1, 3]},
    ]


def test_delays_of_stores_are_one_delay() -> None:
    def of(runs: int, others: int) -> Statement:
        crowded = [Crowded(minute=NOON, runs=runs, others_ms=others, others_share=0.5)]
        return Statement(runs=runs, parts=dict.fromkeys(PARTS, 0) | {"others": others}, crowded=crowded)

    found = together([of(1, 10), of(2, 30)])
    assert (found.runs, found.parts["others"], found.waited) == (3, 40, 40)
    assert [minute.others_ms for minute in found.crowded] == [30, 10]


def test_events_are_in_the_order_of_their_instants_and_each_store_keeps_its_own() -> None:
    def page(*seconds: int) -> dict[str, list[dict[str, object]]]:
        return {"items": [{"at": f"2026-11-30T12:00:{second:02}Z", "n": second} for second in seconds]}

    pages = {0: page(1, 4, 6), 1: page(2, 3)}
    assert [[item["n"] for item in in_order(pages, limit=n, newest=False)[0]] for n in (3, 9)] == [
        [1, 2, 3],
        [1, 2, 3, 4, 6],
    ]
    items, taken = in_order(pages, limit=2, newest=True)
    assert ([item["n"] for item in items], taken) == ([4, 6], {0: 2, 1: 0})


def test_a_place_in_all_stores_is_one_list() -> None:
    places = {0: [1, 20, 3], 2: [1, 5, 6]}
    assert place_of(places) == [1, 20, 3, 2, 1, 5, 6]
    assert places_in(place_of(places)) == places
    assert places_in([]) == {}
    assert place_of({1: [1, 2, 3]}) == [-1, 0, 0, 1, 1, 2, 3]
    assert places_in([1, 2]) is None
