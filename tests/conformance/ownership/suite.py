"""What every ownership store must do. A test module subclasses `OwnershipConformance` and gives
the fixture `store`, empty or not: names and ids here are drawn fresh.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.ownership import OwnershipStore, PromotionRecord, Superseded

#: Writers that race for one row.
THREADS = 16


def _name() -> str:
    return f"cell-{uuid.uuid4().hex[:12]}"


def _race(attempts: list[Callable[[], object]]) -> list[object]:
    """Runs all at once; results and exceptions in order."""
    start = threading.Barrier(len(attempts))
    results: list[object] = [None] * len(attempts)

    def run(i: int) -> None:
        start.wait(10)
        try:
            results[i] = attempts[i]()
        except Superseded as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(attempts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


class OwnershipConformance:
    """Inherit and give `store`."""

    def test_what_is_unknown_is_none(self, store: OwnershipStore) -> None:
        assert store.cell(_name()) is None
        assert store.tenant(uuid.uuid4()) is None
        assert store.tenants_of(_name(), after=None, limit=10) == []

    def test_the_first_claim_of_a_cell(self, store: OwnershipStore) -> None:
        name = _name()
        claimed = store.claim_cell(name, region="a", expected=None)
        assert claimed.epoch > 0
        assert (claimed.cell, claimed.region, claimed.renewals, claimed.promotions) == (name, "a", 0, 0)
        assert store.cell(name) == claimed

    def test_a_first_claim_comes_once(self, store: OwnershipStore) -> None:
        name = _name()
        held = store.claim_cell(name, region="a", expected=None)
        with pytest.raises(Superseded) as refused:
            store.claim_cell(name, region="b", expected=None)
        assert refused.value.current == held
        assert store.cell(name) == held

    def test_a_takeover_builds_on_the_epoch_seen(self, store: OwnershipStore) -> None:
        name = _name()
        first = store.claim_cell(name, region="a", expected=None)
        second = store.claim_cell(name, region="b", expected=first.epoch)
        assert second.epoch > first.epoch
        assert (second.region, second.promotions) == ("b", 1)
        with pytest.raises(Superseded) as refused:
            store.claim_cell(name, region="c", expected=first.epoch)
        assert refused.value.current == second

    def test_nothing_is_taken_over_that_is_not_there(self, store: OwnershipStore) -> None:
        with pytest.raises(Superseded) as refused:
            store.claim_cell(_name(), region="a", expected=1)
        assert refused.value.current is None
        with pytest.raises(Superseded) as refused:
            store.claim_tenant(uuid.uuid4(), cell="c", expected=1)
        assert refused.value.current is None

    def test_only_the_owner_renews(self, store: OwnershipStore) -> None:
        name = _name()
        first = store.claim_cell(name, region="a", expected=None)
        assert store.renew_cell(name, region="a", epoch=first.epoch).renewals == 1
        assert store.renew_cell(name, region="a", epoch=first.epoch).renewals == 2
        second = store.claim_cell(name, region="b", expected=first.epoch)
        assert second.renewals == 0
        for region, epoch in (("a", first.epoch), ("a", second.epoch), ("b", first.epoch)):
            with pytest.raises(Superseded):
                store.renew_cell(name, region=region, epoch=epoch)
        assert store.cell(name) == second

    def test_a_tenant_is_placed_and_moved(self, store: OwnershipStore) -> None:
        tenant, here, there = uuid.uuid4(), _name(), _name()
        first = store.claim_tenant(tenant, cell=here, expected=None)
        assert store.tenant(tenant) == first
        second = store.claim_tenant(tenant, cell=there, expected=first.epoch)
        assert second.epoch > first.epoch
        assert store.tenants_of(here, after=None, limit=10) == []
        assert store.tenants_of(there, after=None, limit=10) == [second]
        with pytest.raises(Superseded) as refused:
            store.claim_tenant(tenant, cell=here, expected=first.epoch)
        assert refused.value.current == second

    def test_epochs_of_cells_and_tenants_are_one_order(self, store: OwnershipStore) -> None:
        name, tenant = _name(), uuid.uuid4()
        cell = store.claim_cell(name, region="a", expected=None)
        placed = store.claim_tenant(tenant, cell=name, expected=None)
        again = store.claim_cell(name, region="b", expected=cell.epoch)
        assert cell.epoch < placed.epoch < again.epoch

    def test_tenants_of_a_cell_in_pages(self, store: OwnershipStore) -> None:
        name = _name()
        tenants = sorted(uuid.uuid4() for _ in range(5))
        for tenant in tenants:
            store.claim_tenant(tenant, cell=name, expected=None)
        first = store.tenants_of(name, after=None, limit=3)
        rest = store.tenants_of(name, after=first[-1].tenant_id, limit=3)
        assert [t.tenant_id for t in [*first, *rest]] == tenants

    def test_a_tenant_is_released_by_who_knows_its_epoch(self, store: OwnershipStore) -> None:
        tenant = uuid.uuid4()
        placed = store.claim_tenant(tenant, cell="c", expected=None)
        with pytest.raises(Superseded):
            store.release_tenant(tenant, expected=placed.epoch + 1)
        store.release_tenant(tenant, expected=placed.epoch)
        assert store.tenant(tenant) is None

    def test_of_many_claimers_one_wins(self, store: OwnershipStore) -> None:
        for _ in range(5):
            tenant = uuid.uuid4()
            placed = store.claim_tenant(tenant, cell="c", expected=None)

            def claim(n: int, tenant: uuid.UUID = tenant, seen: int = placed.epoch) -> object:
                return store.claim_tenant(tenant, cell=f"c{n}", expected=seen)

            results = _race([lambda n=n: claim(n) for n in range(THREADS)])  # type: ignore[misc]
            won = [r for r in results if not isinstance(r, Superseded)]
            assert len(won) == 1
            assert store.tenant(tenant) == won[0]

    def test_of_many_first_claimers_one_wins(self, store: OwnershipStore) -> None:
        for _ in range(5):
            name = _name()

            def claim(n: int, name: str = name) -> object:
                return store.claim_cell(name, region=f"r{n}", expected=None)

            results = _race([lambda n=n: claim(n) for n in range(THREADS)])  # type: ignore[misc]
            won = [r for r in results if not isinstance(r, Superseded)]
            assert len(won) == 1
            assert store.cell(name) == won[0]

    def test_no_epoch_is_given_twice(self, store: OwnershipStore) -> None:
        def claim() -> object:
            return [store.claim_tenant(uuid.uuid4(), cell="c", expected=None).epoch for _ in range(10)]

        epochs = [e for some in _race([claim] * THREADS) for e in some]  # type: ignore[attr-defined]
        assert len(set(epochs)) == THREADS * 10

    def test_a_takeover_also_builds_on_the_renewals_seen(self, store: OwnershipStore) -> None:
        name = _name()
        seen = store.claim_cell(name, region="a", expected=None)
        woken = store.renew_cell(name, region="a", epoch=seen.epoch)
        with pytest.raises(Superseded) as refused:
            store.claim_cell(name, region="b", expected=seen.epoch, renewals=seen.renewals)
        assert refused.value.current == woken
        taken = store.claim_cell(name, region="b", expected=woken.epoch, renewals=woken.renewals)
        assert (taken.region, taken.renewals) == ("b", 0)

    def test_a_renewal_and_a_takeover_race_and_only_one_comes_first(self, store: OwnershipStore) -> None:
        for _ in range(10):
            name = _name()
            seen = store.claim_cell(name, region="a", expected=None)
            outcomes = _race(
                [
                    lambda n=name, s=seen: store.renew_cell(n, region="a", epoch=s.epoch),  # type: ignore[misc]
                    lambda n=name, s=seen: store.claim_cell(  # type: ignore[misc]
                        n, region="b", expected=s.epoch, renewals=s.renewals
                    ),
                ]
            )
            assert sum(isinstance(outcome, Superseded) for outcome in outcomes) == 1

    def test_the_number_of_a_timeline_is_taken_once(self, store: OwnershipStore) -> None:
        cell = _name()
        assert store.promotions(cell) == []
        first = PromotionRecord(cell=cell, timeline=1, epoch=5, region="a", parent=0, fork=0)
        second = PromotionRecord(cell=cell, timeline=2, epoch=6, region="b", parent=1, fork=2**63 + 7)
        store.record_promotion(first)
        store.record_promotion(second)
        store.record_promotion(second)
        for other in (replace(second, epoch=7), replace(second, region="c")):
            with pytest.raises(Superseded):
                store.record_promotion(other)
        assert store.promotions(cell) == [first, second]
        said_better = replace(second, fork=2**63 + 8)
        store.record_promotion(said_better)
        assert store.promotions(cell) == [first, said_better]

    def test_the_first_vote_stands(self, store: OwnershipStore) -> None:
        cell = _name()
        assert store.votes(cell, epoch=3, regions=("a", "b")) == {}
        store.cast_vote(cell, epoch=3, region="a", place="0/1 on 1")
        store.cast_vote(cell, epoch=3, region="a", place="0/2 on 1")
        store.cast_vote(cell, epoch=4, region="b", place="0/3 on 1")
        assert store.votes(cell, epoch=3, regions=("a", "b")) == {"a": "0/1 on 1"}
        assert store.votes(cell, epoch=4, regions=("a",)) == {}
