"""Where looks begin that must not walk what has died."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from cells.store.fronts import BEGINNING, HELD_MARGIN, HELD_SECONDS, MARGIN, SHARE, Front, HeldFronts

NOW = datetime(2026, 9, 28, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_the_next_look_begins_where_the_oldest_was_found() -> None:
    front = Front(2, seconds=1.0, ahead=False)
    assert front.begin(0.0) == [BEGINNING, BEGINNING]
    front.ended([ago(3), None], at=NOW, now=0.0, took=0.0)
    assert front.begin(0.5) == [ago(3), NOW - MARGIN]
    front.ended([ago(1), None], at=NOW, now=0.5, took=0.0)
    assert front.begin(0.6) == [ago(1), NOW - MARGIN]
    # Never back, but by a look from the beginning.
    front.ended([ago(2), None], at=NOW, now=0.6, took=0.0)
    assert front.begin(0.7) == [ago(1), NOW - MARGIN]
    assert front.begin(1.0) == [BEGINNING, BEGINNING]
    front.ended([ago(90), None], at=NOW, now=1.0, took=0.0)
    assert front.begin(1.1) == [ago(90), NOW - MARGIN]


def test_new_things_may_come_before_what_lies_ahead() -> None:
    front = Front(seconds=60.0, ahead=True)
    front.begin(0.0)
    front.ended([ago(-3600)], at=NOW, now=0.0, took=0.0)
    assert front.begin(1.0) == [NOW - MARGIN]
    front.ended([ago(3600)], at=NOW, now=1.0, took=0.0)
    assert front.begin(2.0) == [NOW - MARGIN]


def test_looks_from_the_beginning_take_a_small_share_of_the_time() -> None:
    front = Front(seconds=1.0, ahead=False)
    front.begin(0.0)
    assert not front.more(0.0), "it was one"
    front.ended([None], at=NOW, now=1.0, took=1.0)
    rest = 1.0 / SHARE
    assert front.begin(rest) != [BEGINNING]
    front.ended([None], at=NOW, now=rest, took=0.0)
    assert not front.more(rest)
    assert front.begin(1.0 + rest) == [BEGINNING]


def test_who_lacks_something_looks_from_the_beginning_at_once() -> None:
    front = Front(seconds=60.0, ahead=False)
    front.begin(0.0)
    front.ended([None], at=NOW, now=0.0, took=0.001)
    assert front.begin(1.0) != [BEGINNING]
    front.ended([None], at=NOW, now=1.0, took=0.0)
    assert front.more(1.0)
    assert front.begin(1.0) == [BEGINNING]


def test_no_place_that_is_held_is_missed() -> None:
    fronts, key, other = HeldFronts(), (uuid.UUID(int=1), "k"), (uuid.UUID(int=1), "l")
    assert fronts.begin([key, other], 0.0) == [BEGINNING, BEGINNING]
    fronts.ended(key, BEGINNING, None, at=NOW, now=0.0)
    # What was started meanwhile, and is not committed yet, ends later than this.
    assert fronts.begin([key, other], 1.0) == [NOW - HELD_MARGIN, BEGINNING]
    fronts.ended(key, NOW - HELD_MARGIN, ago(-3600), at=NOW, now=1.0)
    assert fronts.begin([key], 2.0) == [NOW - HELD_MARGIN]
    # A lease that has been over for long holds its place until somebody takes it back.
    fronts.ended(key, NOW - HELD_MARGIN, ago(300), at=NOW, now=2.0)
    assert fronts.begin([key], 3.0) == [ago(300)]
    assert fronts.begin([key], HELD_SECONDS) == [BEGINNING]
