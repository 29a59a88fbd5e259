"""What is enough to close a month."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from billing.watermarks import Owner, Watermark, missing

END = datetime(2026, 12, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def _mark(cell: str, store: int, epoch: int, sealed: datetime | None) -> dict[tuple[str, int], Watermark]:
    return {(cell, store): Watermark(cell=cell, store=store, epoch=epoch, sealed_until=sealed)}


def test_each_owner_must_have_sealed_the_end() -> None:
    owners = [Owner(cell="a", store=0, epoch=0), Owner(cell="b", store=0, epoch=0)]
    known = _mark("a", 0, 1, END) | _mark("b", 0, 1, END - MINUTE)
    assert missing(owners, known, END) == [Owner(cell="b", store=0, epoch=1)]
    assert missing(owners, known | _mark("b", 0, 1, END), END) == []


def test_silence_is_not_enough() -> None:
    owners = [Owner(cell="a", store=0, epoch=0)]
    assert missing(owners, {}, END) == owners
    assert missing(owners, _mark("a", 0, 4, None), END) == [Owner(cell="a", store=0, epoch=4)]


def test_an_older_owners_word_is_not_enough() -> None:
    owners = [Owner(cell="a", store=0, epoch=7)]
    assert missing(owners, _mark("a", 0, 6, END + MINUTE), END) == owners
    assert missing(owners, _mark("a", 0, 8, END), END) == []


def test_a_local_store_that_ever_spoke_counts_too() -> None:
    owners = [Owner(cell="a", store=0, epoch=0)]
    known = _mark("a", 0, 1, END) | _mark("a", 2, 3, END - MINUTE) | _mark("c", 0, 1, None)
    assert missing(owners, known, END) == [Owner(cell="a", store=2, epoch=3)]
