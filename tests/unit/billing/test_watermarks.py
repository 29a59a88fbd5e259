"""What is enough to close a month."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from billing.watermarks import Watermark, missing, words

END = datetime(2026, 12, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def _mark(cell: str, store: int, epoch: int, sealed: datetime | None) -> dict[tuple[str, int], Watermark]:
    return {(cell, store): Watermark(cell=cell, store=store, epoch=epoch, sealed_until=sealed)}


def test_each_store_must_have_sealed_the_end() -> None:
    stores = [("a", 0), ("b", 0)]
    known = _mark("a", 0, 1, END) | _mark("b", 0, 1, END - MINUTE)
    assert missing(stores, known, END) == [("b", 0)]
    assert missing(stores, known | _mark("b", 0, 1, END), END) == []


def test_silence_is_not_enough() -> None:
    assert missing([("a", 0)], {}, END) == [("a", 0)]
    # An owner that is known to have taken over, and has said nothing yet.
    assert missing([("a", 0)], _mark("a", 0, 4, None), END) == [("a", 0)]


def test_a_local_store_that_ever_spoke_counts_too() -> None:
    known = _mark("a", 0, 1, END) | _mark("a", 2, 3, END - MINUTE) | _mark("c", 0, 1, None)
    assert missing([("a", 0)], known, END) == [("a", 2)]


def test_what_stores_have_said_in_words() -> None:
    known = _mark("a", 0, 1, END - MINUTE) | _mark("a", 2, 3, None)
    assert words([("a", 0), ("a", 2), ("b", 0)], known) == [
        "a has sealed up to 2026-11-30T23:59Z",
        "store 2 of a has sealed nothing yet",
        "b has sealed nothing yet",
    ]
