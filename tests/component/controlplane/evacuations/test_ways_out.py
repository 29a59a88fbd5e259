"""Whatever becomes of the other region, an evacuation can be left; and what is asked of sites is told of.

The keepers answer over HTTP, and say what each case has them say; none has a cluster.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from cells.ownership.lease import Timing
from controlplane.errors import Conflicting
from controlplane.evacuations.actions import abort_evacuation, pause_evacuation, resume_evacuation
from controlplane.evacuations.driving import drive
from controlplane.evacuations.machine import State, Whole
from controlplane.evacuations.models import EvacuatedCell, Evacuation
from controlplane.evacuations.wishing import ask_wish, plan_wish
from controlplane.events.models import AuditEvent
from controlplane.ownership import OwnershipStore
from controlplane.regions.deciding import Act
from controlplane.regions.keeper import Keeper
from controlplane.regions.pages import serving
from controlplane.regions.settings import Settings
from controlplane.regions.wishes import Wishes
from controlplane.rehearsals.driving import drive as rehearse
from controlplane.rehearsals.models import Rehearsal, RehearsedCell, Stage
from controlplane.topology.actions.sites import register_site
from controlplane.topology.models import Cell, CellState, Site
from tests.component.controlplane.factories import ACTOR, REASON, CellFactory
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db

KEY = bytes(range(32))
NOBODY = "http://127.0.0.1:9"


class Two:
    """A cell with sites in `here`, where it was made, and `there`."""

    def __init__(self, name: str, url: str, ownership_url: str, store: OwnershipStore, folder: Path) -> None:
        self.name, self.store = name, store
        self.keepers: dict[str, Keeper] = {}
        self.settings: dict[str, Settings] = {}
        self.urls: dict[str, str] = {}
        CellFactory(name=name, url=url, region="here", key=KEY)
        for region in ("here", "there"):
            self.settings[region] = Settings(
                cell=name, region=region, founder="here", bind_host="127.0.0.1", bind_port=0, timing=Timing(),
                databases=dict.fromkeys(("here", "there"), "postgresql://x@127.0.0.1:1/x"), key=KEY,
                ownership_url=ownership_url, valkey_url="redis://127.0.0.1:1/0", binaries=folder,
                data=folder / region / "data",
            )  # fmt: skip
            (folder / region).mkdir()
            self.keepers[region] = Keeper(self.settings[region], store)

    @property
    def epoch(self) -> int:
        row = self.store.cell(self.name)
        assert row is not None
        return row.epoch

    def owned_by(self, region: str) -> None:
        """The store and both keepers say so, and the other site follows."""
        row = self.store.cell(self.name)
        assert row is not None
        if row.region != region:
            self.store.claim_cell(self.name, region=region, expected=row.epoch)
        for name, keeper in self.keepers.items():
            status, owns = keeper.status, name == region
            status.act, status.owns, status.primary = (Act.OWN if owns else Act.FOLLOW), owns, owns
            status.owner, status.epoch, status.streaming = region, self.epoch, not owns
            other = next(n for n in self.keepers if n != name)
            status.standbys = [{"site": other, "state": "streaming", "behind_bytes": 0}] if owns else []
        Cell.objects.filter(pk=self.name).update(ownership_epoch=self.epoch)

    def away(self, region: str, *, away: bool = True) -> None:
        Site.objects.filter(cell=self.name, region=region).update(
            keeper_url=NOBODY if away else self.urls[region]
        )

    def asked(self, region: str) -> str | None:
        return Wishes(self.settings[region].data.parent).handover(self.epoch, time.time())

    @property
    def state(self) -> str:
        return Cell.objects.get(pk=self.name).state


@pytest.fixture
def two(control: None, ownership_url: str, ownership: OwnershipStore, tmp_path: Path) -> Iterator[Two]:
    name = f"cell-{uuid.uuid4().hex[:10]}"
    with StandInCell(name, KEY) as cell, ExitStack() as stack:
        made = Two(name, cell.url, ownership_url, ownership, tmp_path)
        for region, keeper in made.keepers.items():
            port = stack.enter_context(serving(keeper, made.settings[region]))
            made.urls[region] = f"http://127.0.0.1:{port}"
            register_site(cell=name, region=region, keeper_url=made.urls[region], actor=ACTOR, reason=REASON)
        made.owned_by("here")
        yield made


def _evacuation(two: Two, state: State, **more: Any) -> Evacuation:
    """Of `here`, with its cell in that state, closed as it would be."""
    found = Evacuation.objects.create(
        region_id="here", kind=more.pop("kind", "EVACUATE"), calm_seconds=0, started_by="tests", reason=REASON
    )
    EvacuatedCell.objects.create(
        evacuation=found, cell_id=two.name, position=0, state=state,
        **{"source": "here", "target": "there", "state_before": "OPEN", **more},
    )  # fmt: skip
    Cell.objects.filter(pk=two.name).update(state=CellState.CORDONED)
    return found


def _driven(two: Two, found: Evacuation, times: int = 1) -> EvacuatedCell:
    for _ in range(times):
        drive(found.id, store=two.store)
    found.refresh_from_db()
    return found.cells.get()


def test_what_cannot_come_back_is_left_where_it_is(two: Two) -> None:
    two.owned_by("there")
    found = _evacuation(two, State.DONE)
    two.away("here")
    asked: dict[str, Any] = {"evacuation_id": found.id, "actor": ACTOR, "reason": REASON}
    abort_evacuation(**asked, hand_back=True)
    row = _driven(two, found, 4)
    assert (row.at, row.source, row.target) == (State.CATCH_UP, "there", "here")
    assert "waits for the keeper in here" in row.why
    with pytest.raises(Conflicting, match="without `hand_back`"):
        abort_evacuation(**asked, hand_back=True)
    abort_evacuation(**asked)
    row = _driven(two, found, 2)
    assert (row.at, found.at, row.why) == (State.ABORTED, Whole.ABORTED, "stays in there")
    assert found.why == "1 of 1 cells handed over"
    assert two.state == CellState.CORDONED  # as every cell that left its region
    with pytest.raises(Conflicting, match="cannot abort"):
        abort_evacuation(**asked)

    # Its region is back, and by a failback, or before one came to it, the cell: it takes tenants again.
    two.away("here", away=False)
    two.owned_by("here")
    back = _evacuation(two, State.SETTLE, kind="FAIL_BACK", source="there", target="here", state_before="")
    row = _driven(two, back)
    assert (row.at, row.why) == (State.SKIPPED, "here owns it already")
    assert two.state == CellState.OPEN


def test_cells_that_came_home_before_the_second_abort_are_open(two: Two) -> None:
    found = _evacuation(two, State.WATCH, source="there", target="here", returning=True)
    Evacuation.objects.filter(pk=found.pk).update(state=Whole.ABORTING, hand_back=True)
    abort_evacuation(evacuation_id=found.id, actor=ACTOR, reason=REASON)
    assert _driven(two, found).at is State.DONE
    assert two.state == CellState.OPEN


def test_nothing_is_handed_over_behind_a_pause_and_a_silent_keeper_holds_nobody(two: Two) -> None:
    found = _evacuation(two, State.HAND_OVER)
    asked: dict[str, Any] = {"evacuation_id": found.id, "actor": ACTOR, "reason": REASON}
    pause_evacuation(**asked)
    row = _driven(two, found)
    assert (row.at, row.lifts, two.asked("here")) == (State.CATCH_UP, 0, None)
    assert _driven(two, found).at is State.CATCH_UP
    resume_evacuation(**asked)
    row = _driven(two, found, 2)
    assert (row.at, two.asked("here"), "asked" in row.facts) == (State.HAND_OVER, "there", True)

    # What was asked for is waited for, paused or not; not for ever, whether its keeper answers or not.
    pause_evacuation(**asked)
    two.away("here")
    assert _driven(two, found).at is State.HAND_OVER
    EvacuatedCell.objects.filter(pk=row.pk).update(facts={"asked": {"at": 0.0, "until": 0.0}})
    row = _driven(two, found)
    assert (row.at, row.lifts) == (State.CATCH_UP, 1)
    assert "does not answer" in row.steps.get(event="LIFTED").why
    abort_evacuation(**asked)
    assert _driven(two, found, 2).at is State.ABORTED
    assert (found.at, two.state) == (Whole.ABORTED, CellState.OPEN)


def test_a_cell_that_is_given_up_while_its_owner_is_silent_stays_closed(two: Two) -> None:
    found = _evacuation(two, State.TAKEOVER)
    two.away("here")
    abort_evacuation(evacuation_id=found.id, actor=ACTOR, reason=REASON)
    row = _driven(two, found, 2)
    assert (row.at, found.at) == (State.ABORTED, Whole.ABORTED)
    assert "takes no new tenants until somebody opens it" in row.why
    assert two.state == CellState.CORDONED


def test_a_cell_that_its_source_took_back_is_not_called_handed_over(two: Two) -> None:
    found = _evacuation(two, State.WATCH, new_epoch=two.epoch, facts={"asked": {"at": 0.0, "until": 0.0}})
    row = _driven(two, found)
    assert (row.at, row.lifts, row.new_epoch) == (State.CATCH_UP, 1, None)
    assert "asked" not in row.facts
    assert AuditEvent.objects.filter(action="evacuation.cell_taken_back", subject=two.name).exists()

    # What a step runs into is said, and ends no round.
    two.keepers["here"].status.standbys = [{}]
    assert "KeyError" in _driven(two, found).why
    # It is at the target after all: a handover that came late.
    two.owned_by("there")
    assert _driven(two, found).at is State.WATCH
    row = _driven(two, found)
    assert (row.at, found.at, two.state) == (State.DONE, Whole.DONE, CellState.CORDONED)


def test_a_cell_that_went_elsewhere_is_skipped(two: Two) -> None:
    found = _evacuation(two, State.CATCH_UP)
    two.store.claim_cell(two.name, region="elsewhere", expected=two.epoch)
    row = _driven(two, found)
    assert (row.at, row.why) == (State.SKIPPED, "elsewhere owns it now")
    assert two.state == CellState.CORDONED


def test_a_wish_is_recorded_before_it_is_asked(two: Two) -> None:
    leads, other = two.keepers["there"].status, two.keepers["here"].status
    leads.missing, leads.owns, leads.act = ("here",), False, Act.WAIT
    other.act, other.owns = Act.VOTE, False
    wished: dict[str, Any] = {"cell": two.name, "region": "there", "verb": "override"}
    assert "here is about to vote" in (plan_wish(**wished).refusal or "")
    assert "no takeover waits" in (plan_wish(**wished | {"region": "here"}).refusal or "")
    two.away("here")
    plan = plan_wish(**wished)
    assert plan.refusal is None
    with pytest.raises(Conflicting, match="nobody takes"):
        ask_wish(**wished, epoch=plan.epoch, confirm=plan.confirmation, actor=ACTOR, reason="it burnt down")
    told = AuditEvent.objects.filter(subject=two.name, action__startswith="site.").order_by("at")
    assert [(one.action, one.after["said"][:5]) for one in told] == [
        ("site.override", "asked"),
        ("site.refused", "nobod"),
    ]


def test_a_cut_that_not_all_take_part_in_is_taken_back(two: Two) -> None:
    found = Rehearsal.objects.create(region_id="here", seconds=600, started_by="tests")
    RehearsedCell.objects.create(rehearsal=found, cell_id=two.name, epoch=two.epoch)
    two.away("here")
    wishes = Wishes(two.settings["there"].data.parent)

    def looked_at() -> Stage:
        rehearse(found.id, store=two.store)
        found.refresh_from_db()
        return found.at

    assert looked_at() is Stage.CUTTING  # its keeper is told again for some seconds
    cut = wishes.cut(time.time())
    assert cut is not None
    assert cut.until > time.time() + 60
    Rehearsal.objects.filter(pk=found.pk).update(cut_at=timezone.now() - timedelta(minutes=1))
    assert looked_at() is Stage.FAILED
    assert "does not take part" in found.why
    cut = wishes.cut(time.time())
    assert cut is None or cut.until < time.time() + 3
