"""Never two owners, whatever is paused, delayed or lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cells.ownership.lease import Sight, Tenure, Timing, Watch

TIMING = Timing()


def test_settings_that_leave_no_lease_are_refused() -> None:
    with pytest.raises(ValueError, match="is none"):
        Timing(lease=5, renew=5)
    with pytest.raises(ValueError, match="is none"):
        Timing(stop=0)
    assert Timing().scaled(0.05) == Timing(lease=1.0, renew=0.25, stop=0.25, start=0.25)


def test_the_owner_counts_from_the_start_of_its_renewal_and_stops_early() -> None:
    tenure = Tenure(TIMING)
    assert not tenure.acts(3, 0.0)
    tenure.renewed(epoch=3, began=100.0)
    assert tenure.acts(3, 114.9)
    assert not tenure.acts(3, 115.0)
    assert not tenure.acts(2, 100.0)
    tenure.renewed(epoch=3, began=99.0)  # an answer that came late
    assert tenure.until(3) == 115.0
    assert not tenure.due(3, 104.9)
    assert tenure.due(3, 105.0)
    tenure.lost()
    assert not tenure.acts(3, 100.0)


def test_a_survivor_counts_from_the_answer_that_showed_the_record_first() -> None:
    watch = Watch(TIMING)
    sight = Sight(region="a", epoch=3, renewals=7)
    assert watch.may_claim(1e9) is None
    watch.saw(sight, answered=100.0)
    watch.saw(sight, answered=124.0)
    assert watch.may_claim(124.9) is None
    assert watch.may_claim(125.0) == sight
    assert watch.may_claim(125.0, after=1.0) is None
    watch.saw(Sight(region="a", epoch=3, renewals=8), answered=125.5)
    assert watch.may_claim(126.0) is None


@dataclass
class _Request:
    """A call to the store: sent, perhaps done, perhaps answered; in that order, at any time."""

    kind: str
    began: float
    based_on: Sight | None = None
    done: bool = False
    result: Sight | None = None  # as the store had it when it was done


class _Site:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tenure = Tenure(TIMING)
        self.watch = Watch(TIMING)
        self.request: _Request | None = None
        self.epoch = 0  # it believes to own


class Regions(RuleBasedStateMachine):
    """Three sites and a store with conditional writes. Every site may stand still at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sites = {name: _Site(name) for name in "abc"}
        self.record = Sight(region="a", epoch=1, renewals=0)
        self.sites["a"].epoch = 1

    names = st.sampled_from("abc")

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 4.9, 5.0, 10.0, 15.0, 20.0, 25.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=names)
    def looks(self, name: str) -> None:
        if self.sites[name].request is None:
            self.sites[name].request = _Request("look", self.now)

    @rule(name=names)
    def renews(self, name: str) -> None:
        site = self.sites[name]
        if site.request is None and site.epoch:
            site.request = _Request("renew", self.now, Sight(region=name, epoch=site.epoch, renewals=0))

    @rule(name=names)
    def claims(self, name: str) -> None:
        site = self.sites[name]
        seen = site.watch.may_claim(self.now)
        if site.request is None and seen is not None and seen.region != name:
            site.request = _Request("claim", self.now, seen)

    @precondition(lambda self: any(site.request for site in self.sites.values()))
    @rule(name=names)
    def the_store_does_it(self, name: str) -> None:
        request = self.sites[name].request
        if request is None or request.done:
            return
        request.done, was = True, self.record
        if request.kind == "renew" and request.based_on is not None:
            if (was.region, was.epoch) == (name, request.based_on.epoch):
                self.record = Sight(region=name, epoch=was.epoch, renewals=was.renewals + 1)
                request.result = self.record
        elif request.kind == "claim":
            if was == request.based_on:
                self.record = Sight(region=name, epoch=was.epoch + 1, renewals=0)
                request.result = self.record
        else:
            request.result = was

    @rule(name=names, lost=st.booleans())
    def the_answer_comes(self, name: str, lost: bool) -> None:
        site = self.sites[name]
        request, site.request = site.request, None
        if request is None or not request.done or lost or request.result is None:
            return
        if request.kind == "look":
            site.watch.saw(request.result, answered=self.now)
        else:
            site.epoch = request.result.epoch
            site.tenure.renewed(epoch=site.epoch, began=request.began)

    @invariant()
    def nobody_acts_beside_another(self) -> None:
        acting = [site.name for site in self.sites.values() if site.tenure.acts(site.epoch, self.now)]
        assert len(acting) <= 1, acting


TestRegions = Regions.TestCase
TestRegions.settings = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
