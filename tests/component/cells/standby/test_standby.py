"""A cell's clusters: streaming, votes, promotion, and the way back. Real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cells.standby.cluster import NotThere, Outvoted
from cells.standby.election import Vote, choose
from cells.standby.lines import Line
from deploy.children import CannotStart
from tests.component.cells.standby.clusters import SITES, Sites, three_sites
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def sites() -> Iterator[Sites]:
    with three_sites() as sites:
        yield sites


def test_a_commit_may_wait_for_one_standby_and_does_not_by_default(sites: Sites) -> None:
    a = sites["a"]
    assert a.execute("SHOW synchronous_commit") == [("local",)]
    assert a.execute("SHOW data_checksums") == [("on",)]
    eventually_sync(lambda: {one.sync for one in a.cluster.standbys()} == {"quorum"})
    assert [one.site for one in a.cluster.standbys()] == ["b", "c"]
    sites["b"].stop()
    with_one = "SET synchronous_commit = on; INSERT INTO facts VALUES (1)"
    a.execute(with_one)
    sites.caught_up("a", "c")
    assert sites["c"].rows() == [1]


def test_the_owner_dies_and_the_most_advanced_standby_takes_over(sites: Sites) -> None:
    a, b, c = (sites[name] for name in SITES)
    a.execute("INSERT INTO facts VALUES (1)")
    sites.caught_up("a", "b", "c")
    c.stop()  # misses what comes now
    a.execute("INSERT INTO facts VALUES (2)")
    sites.caught_up("a", "b")
    c.start()
    a.kill()

    places = sites.votes(2, "b", "c")
    # However c came back, it has at most what b has; both are on the cell's only line.
    assert places["b"].lsn >= places["c"].lsn
    assert all(place.lies_on(Line()) for place in places.values())
    outcome = choose(
        cell="cell",
        epoch=2,
        line=Line(),
        sites=SITES,
        last_primary="a",
        votes=[Vote(site=site, epoch=2, place=place) for site, place in places.items()],
    )
    winner = sites[outcome.winner or ""]
    loser = c if winner is b else b
    line = winner.cluster.promote(2, seconds=20)
    assert line.timeline == 2
    assert [fork.timeline for fork in line.forks] == [1]
    assert winner.rows() == [1, 2]

    # The other one follows by a reload and comes onto the new timeline by itself.
    loser.cluster.follow(winner.url, primary=winner.name, epoch=2)
    winner.execute("INSERT INTO facts VALUES (3)")
    sites.caught_up(winner.name, loser.name)
    assert loser.rows() == [1, 2, 3]
    assert eventually_sync(lambda: loser.cluster.line() == line)


def test_a_vote_survives_a_restart_and_never_returns(sites: Sites) -> None:
    a, b = sites["a"], sites["b"]
    a.execute("INSERT INTO facts VALUES (1)")
    sites.caught_up("a", "b", "c")
    first = b.cluster.vote(5, seconds=20)
    a.execute("INSERT INTO facts VALUES (2)")
    sites.caught_up("a", "c")
    assert b.rows() == [1]

    b.kill()
    b.start()
    look = b.cluster.look()
    assert (look.voted_epoch, look.follows, look.receiver) == (5, False, False)
    # What was received is forgotten over a restart, the place is not.
    assert b.cluster.vote(5, seconds=20) == first
    with pytest.raises(Outvoted):
        b.cluster.follow(a.url, primary="a", epoch=4)
    with pytest.raises(Outvoted):
        b.cluster.vote(4, seconds=20)
    b.stop()
    with pytest.raises(CannotStart, match="has voted for epoch 5"):
        b.folder("rejoin", primary=a, epoch=4)
    b.start()
    assert b.rows() == [1]
    assert b.cluster.vote(6, seconds=20) == first
    # The owner may come to be the owner again, under a later epoch.
    b.cluster.follow(a.url, primary="a", epoch=7)
    sites.caught_up("a", "b")
    assert b.rows() == [1, 2]


def test_nobody_is_promoted_that_has_not_voted_for_this_epoch(sites: Sites) -> None:
    b = sites["b"]
    with pytest.raises(Outvoted):
        b.cluster.promote(2, seconds=20)
    b.cluster.vote(3, seconds=20)
    with pytest.raises(Outvoted):
        b.cluster.promote(2, seconds=20)
    assert b.cluster.look().in_recovery
    with pytest.raises(NotThere):
        sites["a"].cluster.vote(2, seconds=20)  # a primary is fenced before it votes


def test_a_number_that_was_used_elsewhere_is_not_used_again(sites: Sites) -> None:
    a, b, c = (sites[name] for name in SITES)
    a.execute("INSERT INTO facts VALUES (1)")
    sites.caught_up("a", "b", "c")
    a.kill()
    sites.votes(2, "b", "c")
    second = b.cluster.promote(2, seconds=20)
    b.execute("INSERT INTO facts VALUES (2)")
    b.kill()  # c has never heard of what b did
    sites.votes(3, "c")
    c.cluster.take_numbers([1, second.timeline])
    third = c.cluster.promote(3, seconds=20)
    assert (second.timeline, third.timeline) == (2, 3)
    assert [fork.timeline for fork in third.forks] == [1]
    c.execute("INSERT INTO facts VALUES (3)")

    # Both come back as standbys of c; what only b had is gone from it.
    for site in (a, b):
        assert site.folder("rejoin", primary=c, epoch=3) in ("rewound\n", "copied\n")
        c.cluster.prepare_for_others(set(SITES) - {"c"})
        site.start()
    sites.caught_up("c", "a", "b")
    assert a.rows() == b.rows() == [1, 3]
    assert a.cluster.line() == b.cluster.line() == third


def test_a_returning_primary_starts_fenced_and_is_rewound(sites: Sites) -> None:
    a, b, c = (sites[name] for name in SITES)
    a.execute("INSERT INTO facts VALUES (1)")
    sites.caught_up("a", "b", "c")
    sites.votes(2, "b", "c")  # from now on nothing reaches them
    a.execute("INSERT INTO facts VALUES (2)")
    a.kill()
    b.cluster.promote(2, seconds=20)
    c.cluster.follow(b.url, primary="b", epoch=2)
    b.execute("INSERT INTO facts VALUES (3)")

    a.folder("fence")
    a.start()
    look = a.cluster.look()
    assert (look.in_recovery, look.follows, look.receiver) == (True, False, False)
    assert a.rows() == [1, 2]  # its tail can be read
    assert not a.cluster.place().lies_on(b.cluster.line())
    a.stop()
    assert a.folder("rejoin", primary=b, epoch=2) == "rewound\n"
    b.cluster.prepare_for_others({"a", "c"})
    a.start()
    sites.caught_up("b", "a", "c")
    assert a.rows() == c.rows() == [1, 3]


def test_a_rewind_that_was_cut_off_becomes_a_base_backup(sites: Sites) -> None:
    a, c = sites["a"], sites["c"]
    c.stop()
    a.execute("INSERT INTO facts VALUES (1)")
    (c.log.parent / "rewinding").touch()
    assert c.folder("rejoin", primary=a, epoch=1) == "copied\n"
    c.start()
    sites.caught_up("a", "c")
    assert c.rows() == [1]
    assert not (c.log.parent / "rewinding").exists()
