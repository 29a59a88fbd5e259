"""The model of the fair queue keeps its promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cells.domain.fairness import FairQueue


def fill(queue: FairQueue[int], tenant: str, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        queue.add(tenant, n, n)


def served(queue: FairQueue[int], limit: int) -> str:
    return "".join(tenant for tenant, _ in queue.pop(limit))


def test_a_flood_does_not_delay_a_newcomer() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, "a", 1000)
    assert served(queue, 500) == "a" * 500
    fill(queue, "b", 3)
    assert served(queue, 7) == "bababaa"


def test_own_order_is_by_due_time() -> None:
    queue: FairQueue[int] = FairQueue()
    for member, due in ((1, 30), (2, 10), (3, 20)):
        queue.add("a", member, due)
    assert not queue.add("a", 1, 5)  # a second add moves nothing
    assert queue.pop(3) == [("a", 2), ("a", 3), ("a", 1)]


def test_a_cancelled_flood_owes_nothing() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, "a", 10)
    fill(queue, "b", 10)
    for n in range(10):
        assert queue.remove("a", n)
    assert not queue.remove("a", 3)
    assert served(queue, 4) == "bbbb"
    fill(queue, "a", 4, first=100)
    assert served(queue, 8) == "aabababb"


def test_stale_members_are_refunded() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, "a", 10)
    fill(queue, "b", 10)
    assert served(queue, 2) == "ab"
    queue.refund("a", 1)
    assert served(queue, 3) == "aab"


def test_idling_saves_up_no_credit() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, "a", 1)
    fill(queue, "b", 1000)
    assert served(queue, 900) == "a" + "b" * 899
    fill(queue, "a", 100, first=10)
    assert served(queue, 100).count("a") == 51  # the place it came to, and then every second one


def test_one_at_a_time_is_not_a_way_to_be_first() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, "b", 100)
    order = ""
    for n in range(20):
        queue.add("a", n, n)  # always just one, as soon as the one before is served
        order += served(queue, 2)
    assert order.count("a") <= 21


def test_tenants_that_are_passed_over_keep_their_place() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, "a", 3)
    fill(queue, "b", 3)
    assert queue.pop(2, but_not={"a"}) == [("b", 0), ("b", 1)]
    assert queue.pop(5, but_not={"a", "b"}) == []
    assert served(queue, 4) == "aaba"  # from the queue's time on, not from where it was left


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 400), st.booleans()), min_size=1, max_size=120
    ),
    st.integers(1, 5),
)
def test_backlogged_tenants_differ_by_at_most_one_turn(
    arrivals: list[tuple[str, int, bool]], batch: int
) -> None:
    """Over any stretch in which two tenants never run dry, their shares differ by two at most."""
    queue: FairQueue[int] = FairQueue()
    for i, (tenant, due, _) in enumerate(arrivals):
        queue.add(tenant, i, due)
    total, order = len(queue), []
    while popped := queue.pop(batch):
        order += [tenant for tenant, _ in popped]
    assert len(order) == total
    for a in "abcd":
        for b in "abcd":
            both = min(max((i for i, t in enumerate(order) if t == x), default=-1) for x in (a, b))
            head = order[: both + 1]
            assert abs(head.count(a) - head.count(b)) <= 1
