"""What a keeper does next, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cells.standby.cluster import Look
from cells.standby.lines import Line, Place, Promotion
from controlplane.ownership.store import CellOwnership
from controlplane.regions.deciding import Act, Decision, Known, decide, starts_as

FIRST, SECOND = Line(), Line().forked(at=100, timeline=2)
BEGUN = Promotion(timeline=1, epoch=5, site="a", parent=0, fork=0)
TAKEN = Promotion(timeline=2, epoch=8, site="b", parent=1, fork=100)
PRIMARY = Look(
    in_recovery=False, replayed=90, received=0, receiver=False, streaming=False, waits_for="",
    voted_epoch=0, followed="", follows=False,
)  # fmt: skip
STANDBY = replace(PRIMARY, in_recovery=True, followed="a@5", follows=True, receiver=True, streaming=True)
FENCED = replace(PRIMARY, in_recovery=True)


def row(region: str, epoch: int) -> CellOwnership:
    return CellOwnership(cell="cell", region=region, epoch=epoch, renewals=0, promotions=0)


def at(lsn: int, line: Line = FIRST) -> Place:
    return Place(line=line, lsn=lsn)


def voted(epoch: int) -> Look:
    return replace(FENCED, voted_epoch=epoch)


def known(me: str, look: Look | None, owner: CellOwnership | None, **more: object) -> Known:
    values: dict[str, object] = {
        "promotions": [BEGUN], "place": at(90), "votes": {}, "may_claim": False, **more
    }  # fmt: skip
    return Known(
        cell="cell", me=me, sites=("a", "b", "c"), founder="a", row=owner, look=look, **values  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("case", "act"),
    [
        # the beginning
        (known("a", PRIMARY, None, promotions=[]), Act.BEGIN),
        (known("b", FENCED, None, promotions=[]), Act.WAIT),
        (known("a", PRIMARY, row("a", 5), promotions=[]), Act.FOUND),
        (known("b", STANDBY, row("b", 5), promotions=[]), Act.WAIT),
        # every day
        (known("a", PRIMARY, row("a", 5)), Act.OWN),
        (known("b", STANDBY, row("a", 5)), Act.FOLLOW),
        (known("a", None, row("a", 5)), Act.WAIT),
        # the owner's server was started read-only, as nobody could be asked
        (known("a", FENCED, row("a", 5)), Act.UNFENCE),
        # nobody renews
        (known("b", STANDBY, row("a", 5), may_claim=True), Act.CLAIM),
        (known("b", None, row("a", 5), may_claim=True), Act.WAIT),
        # votes
        (known("b", STANDBY, row("b", 8)), Act.VOTE),
        (known("c", STANDBY, row("b", 8)), Act.VOTE),
        (known("c", voted(7), row("b", 8), votes={"c": at(90)}), Act.VOTE),
        (known("c", voted(8), row("b", 8)), Act.VOTE),  # it was not told to the others yet
        (known("c", voted(8), row("b", 8), votes={"c": at(90)}), Act.WAIT),
        (known("b", voted(8), row("b", 8), votes={"b": at(90)}), Act.WAIT),
        (known("b", voted(8), row("b", 8), votes={"b": at(90)}, override=True), Act.PROMOTE),
        (known("b", voted(8), row("b", 8), votes={"b": at(90), "c": at(80)}), Act.PROMOTE),
        (known("b", voted(8), row("b", 8), votes={"b": at(90), "c": at(95)}), Act.HAND_OVER),
        # the last primary is back before anybody was promoted: fenced first, and then it has everything
        (known("a", PRIMARY, row("b", 8)), Act.FENCE),
        (known("a", FENCED, row("b", 8)), Act.VOTE),
        (known("b", voted(8), row("b", 8), votes={"a": at(95), "b": at(90)}), Act.HAND_OVER),
        (known("a", PRIMARY, row("a", 9)), Act.FENCE),
        # a promotion that was recorded and cut off, before and after it was done
        (known("b", voted(8), row("b", 8), promotions=[BEGUN, TAKEN], place=at(100)), Act.PROMOTE),
        (known("b", PRIMARY, row("b", 8), promotions=[BEGUN, TAKEN], place=at(120, SECOND)), Act.OWN),
        # the owner's server restarted read-only after its promotion
        (known("b", voted(8), row("b", 8), promotions=[BEGUN, TAKEN], place=at(120, SECOND)), Act.UNFENCE),
        # after a takeover
        (known("c", voted(8), row("b", 8), promotions=[BEGUN, TAKEN], place=at(80)), Act.FOLLOW),
        (known("a", PRIMARY, row("b", 8), promotions=[BEGUN, TAKEN], place=at(130)), Act.FENCE),
        (known("a", FENCED, row("b", 8), promotions=[BEGUN, TAKEN], place=at(100)), Act.FOLLOW),
        (known("a", FENCED, row("b", 8), promotions=[BEGUN, TAKEN], place=at(130)), Act.STRAYED),
        # who strayed takes nothing over
        (
            known("a", FENCED, row("b", 8), promotions=[BEGUN, TAKEN], place=at(130), may_claim=True),
            Act.STRAYED,
        ),
    ],
)
def test_each_case_has_its_act(case: Known, act: Act) -> None:
    decision = decide(case)
    assert decision.act is act, decision.why
    assert decision.why


def test_whom_an_act_is_about_is_said() -> None:
    handed = decide(known("b", voted(8), row("b", 8), votes={"b": at(90), "c": at(95)}))
    assert (handed.act, handed.whom) == (Act.HAND_OVER, "c")
    followed = decide(known("b", STANDBY, row("a", 5)))
    assert followed == Decision(act=Act.FOLLOW, why="a is the primary", whom="a")
    missing = decide(known("b", voted(8), row("b", 8), votes={"b": at(90)}))
    assert missing.why == "the votes of c are missing"
    assert missing.missing == ("c",)


@pytest.mark.parametrize(
    ("me", "owner", "promotions", "line", "act"),
    [
        ("a", None, [], FIRST, Act.OWN),  # the founding site's new cluster
        ("b", None, [], None, Act.WAIT),
        ("a", row("a", 5), [], FIRST, Act.OWN),
        ("a", row("a", 5), [BEGUN], FIRST, Act.OWN),
        ("b", row("a", 5), [BEGUN], None, Act.FOLLOW),
        ("b", row("a", 5), [BEGUN], FIRST, Act.FENCE),
        ("a", row("b", 8), [BEGUN], FIRST, Act.FENCE),  # a takeover is under way
        ("c", row("b", 8), [BEGUN], None, Act.WAIT),
        ("b", row("b", 8), [BEGUN, TAKEN], FIRST, Act.FENCE),  # recorded, not promoted yet
        ("b", row("b", 8), [BEGUN, TAKEN], SECOND, Act.OWN),
        ("b", row("b", 8), [BEGUN, TAKEN], None, Act.WAIT),
        ("a", row("b", 8), [BEGUN, TAKEN], FIRST, Act.FENCE),
        ("a", row("b", 8), [BEGUN, TAKEN], None, Act.FOLLOW),
    ],
)
def test_how_a_server_starts(
    me: str, owner: CellOwnership | None, promotions: list[Promotion], line: Line | None, act: Act
) -> None:
    assert starts_as(me=me, row=owner, promotions=promotions, line=line) is act
