"""Whose fault a delay was: everything is counted once, and others only where they ran."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cells.domain.crowding import PARTS, Began, Waited, statement

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _waited(minute: int = 0, **waits: int) -> Waited:
    every = dict.fromkeys(("window", "retries", "quota", "workers", "queue", "target"), 0)
    return Waited(minute=AT + timedelta(minutes=minute), runs=10, **{**every, **waits})


def test_the_queue_is_shared_out_by_whose_runs_began() -> None:
    told = statement(
        [_waited(queue=1_000, window=500), _waited(1, queue=400), _waited(2, quota=100)],
        {
            AT: Began(own=10, others=90, tenants=1),
            AT + timedelta(minutes=1): Began(own=5, others=0, tenants=0),
        },
    )
    assert told.parts == {
        "window": 500, "retries": 0, "quota": 100, "workers": 0, "own_queue": 500, "others": 900, "target": 0,
    }  # fmt: skip
    assert (told.runs, told.waited) == (30, 2_000)
    ((crowded),) = told.crowded
    assert (crowded.minute, crowded.others_ms, crowded.others_share) == (AT, 900, 0.9)
    assert told.sentence == (
        "30 runs waited 67 ms in the mean: 45% behind other tenants of the cell, 25% for their own windows, "
        "25% behind the tenant's own runs, 5% for the tenant's own quotas."
    )


def test_alone_on_its_cell_a_tenant_waits_behind_itself() -> None:
    told = statement([_waited(queue=700)], {})
    assert (told.parts["own_queue"], told.parts["others"], told.crowded) == (700, 0, [])


def test_neighbours_are_told_of_coarsely_and_a_few_not_at_all() -> None:
    minutes = [_waited(queue=1_000), _waited(1, queue=1_000)]
    began = {
        AT: Began(own=13, others=87, tenants=3),
        AT + timedelta(minutes=1): Began(own=13, others=87, tenants=2),
    }
    many, few = statement(minutes, began, exact=False).crowded[::-1]
    assert (many.others_ms, many.others_share) == (900, 0.9)
    assert (few.others_ms, few.others_share) == (1_000, None)
    assert {crowded.others_share for crowded in statement(minutes, began).crowded} == {0.87}


def test_nothing_and_no_waiting_have_words() -> None:
    assert statement([], {}).sentence == "No run of this time has begun."
    assert statement([_waited()], {}).sentence == "10 runs began without waiting."


@given(
    st.lists(st.tuples(*[st.integers(0, 10**9)] * 6), max_size=8),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=8),
)
def test_all_that_was_waited_is_told_and_no_more(
    waits: list[tuple[int, ...]], began: list[tuple[int, int]]
) -> None:
    names = ("window", "retries", "quota", "workers", "queue", "target")
    minutes = [_waited(i, **dict(zip(names, each, strict=True))) for i, each in enumerate(waits)]
    told = statement(
        minutes,
        {
            AT + timedelta(minutes=i): Began(own=own, others=others, tenants=4)
            for i, (own, others) in enumerate(began)
        },
    )
    assert told.waited == sum(map(sum, waits))
    assert set(told.parts) == set(PARTS)
    assert all(ms >= 0 for ms in told.parts.values())
