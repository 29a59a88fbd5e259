"""Several addresses of one cell."""

from __future__ import annotations

from controlplane.addresses import Turns, split


def test_a_text_holds_one_address_or_several() -> None:
    assert split("http://a:1/") == ("http://a:1",)
    assert split("http://a:1, http://b:2/,") == ("http://a:1", "http://b:2")
    assert split("") == ()


def test_they_take_turns_and_one_that_refused_comes_last() -> None:
    turns = Turns()
    both = "http://a,http://b"
    assert {turns.order(both)[0] for _ in range(2)} == {"http://a", "http://b"}
    turns.refused("http://a")
    assert [turns.order(both) for _ in range(2)] == [("http://b", "http://a")] * 2
    turns.refused("http://b")
    assert {turns.order(both)[0] for _ in range(2)} == {"http://a", "http://b"}, "then nobody is better"
    assert turns.order("http://a") == ("http://a",)
