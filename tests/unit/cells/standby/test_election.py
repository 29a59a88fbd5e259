"""Who is promoted: whatever the votes, nothing that a standby confirmed is lost."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cells.standby.election import Vote, choose, ranked
from cells.standby.lines import Line, Place

SITES = ("a", "b", "c")
LINE = Line().forked(at=100, timeline=2)


def vote(site: str, lsn: int, *, line: Line = LINE, epoch: int = 7) -> Vote:
    return Vote(site=site, epoch=epoch, place=Place(line=line, lsn=lsn))


def elect(*votes: Vote, override: bool = False, sites: tuple[str, ...] = SITES, last: str = "a") -> object:
    return choose(
        cell="cell", epoch=7, line=LINE, sites=sites, last_primary=last, votes=votes, override=override
    )


def test_a_missing_vote_stops_the_takeover() -> None:
    outcome = elect(vote("b", 200))
    assert outcome.winner is None
    assert outcome.missing == ("c",)


def test_an_operator_may_do_without_it_and_that_is_said() -> None:
    outcome = elect(vote("b", 200), override=True)
    assert (outcome.winner, outcome.passed_over) == ("b", ("c",))


def test_votes_of_other_epochs_and_of_strangers_do_not_count() -> None:
    assert elect(vote("b", 200), vote("c", 300, epoch=6)).missing == ("c",)
    assert elect(vote("b", 200), vote("d", 300)).missing == ("c",)


def test_the_last_primary_has_everything_and_needs_nobody() -> None:
    assert elect(vote("a", 200)).winner == "a"
    assert elect(vote("a", 200), vote("b", 190)).winner == "a"


def test_another_history_is_no_candidate_however_far_it_has_come() -> None:
    strayed = vote("c", 900, line=Line())  # went on behind the fork
    outcome = elect(vote("b", 150), strayed)
    assert (outcome.winner, outcome.strangers) == ("b", ("c",))
    assert elect(vote("b", 900, line=Line()), strayed).winner is None


def test_who_never_saw_the_promotion_may_still_win_where_nobody_has_more() -> None:
    assert elect(vote("b", 90, line=Line()), vote("c", 80, line=Line())).winner == "b"
    assert elect(vote("b", 100, line=Line()), vote("c", 100)).winner == "c"


def test_equals_are_ranked_alike_by_all() -> None:
    assert elect(vote("b", 200), vote("c", 200)).winner == ranked("cell", 7, ("b", "c"))[0]


def test_who_claimed_the_epoch_wins_among_equals_and_no_more() -> None:
    for claimer in ("b", "c"):
        outcome = choose(
            cell="cell", epoch=7, line=LINE, sites=SITES, last_primary="a", claimer=claimer,
            votes=[vote("b", 200), vote("c", 200)],
        )  # fmt: skip
        assert outcome.winner == claimer
    more = choose(
        cell="cell", epoch=7, line=LINE, sites=SITES, last_primary="a", claimer="b",
        votes=[vote("b", 200), vote("c", 201)],
    )  # fmt: skip
    assert more.winner == "c"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    places=st.fixed_dictionaries({site: st.integers(0, 300) for site in "bcde"}),
    holders=st.sets(st.sampled_from("bcde"), min_size=1),
    order=st.permutations("bcde"),
)
def test_what_any_standby_had_flushed_survives(
    places: dict[str, int], holders: set[str], order: list[str]
) -> None:
    """`holders` had flushed it before the primary answered, and may have more since."""
    confirmed = min(places[site] for site in holders)
    votes = []
    for site in order:
        line = Line() if places[site] <= 100 else LINE
        votes.append(vote(site, places[site], line=line))
    outcome = elect(*votes, sites=("a", "b", "c", "d", "e"))
    assert outcome.winner is not None
    assert places[outcome.winner] == max(places.values()) >= confirmed
    assert outcome == elect(*reversed(votes), sites=("a", "b", "c", "d", "e"))
