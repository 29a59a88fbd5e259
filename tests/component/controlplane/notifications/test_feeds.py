"""What cells tell reaches rules once, whoever reads and whoever dies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.notifications import reading, watching
from controlplane.notifications.models import (
    Delivery,
    FeedPlace,
    NotificationEvent,
    NotificationRule,
)
from controlplane.tenants.actions.api_keys import create_api_key
from controlplane.tenants.models import Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell
from tests.component.controlplane.factories import ACTOR, REASON, CellFactory, TenantFactory
from tests.component.controlplane.notifications.conftest import made
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db
_KEY = bytes(range(32))
_HOOK = "http://127.0.0.1:9/"


@pytest.fixture
def cell(control: None) -> Iterator[StandInCell]:
    with StandInCell(f"cell-{uuid.uuid4().hex[:10]}", _KEY) as cell:
        CellFactory(name=cell.name, url=cell.url, key=_KEY)
        yield cell


def _event(place: tuple[int, int, int], type_: str = "run.dead_lettered", **data: Any) -> dict[str, Any]:
    return {
        "event_id": "evt_{}_{}_{}".format(*place), "type": type_, "at": "2026-10-01T12:00:00Z",
        "subject": "job_1:x", "actor": None, "data": data, "place": place,
    }  # fmt: skip


def _told() -> list[str]:
    return sorted(Delivery.objects.values_list("contents__event__event_id", flat=True))


def _place(tenant: Tenant) -> list[int] | None:
    return FeedPlace.objects.get(tenant_id=tenant.id).place


def test_a_feed_is_read_on(cell: StandInCell) -> None:
    tenant = TenantFactory()
    made(tenant, url=_HOOK)
    assert reading.read_feeds() == 0
    assert _place(tenant) is None
    (asked,) = cell.read[-1]["tenants"]
    assert asked["after"] is None
    assert datetime.fromisoformat(asked["since"]) <= timezone.now()
    cell.feed[tenant.public_id] = [_event((1, 10, 1)), _event((1, 10, 2), "job.created"), _event((1, 12, 4))]
    assert reading.read_feeds() == 2
    assert reading.read_feeds() == 0
    assert _place(tenant) == [1, 12, 4]
    assert cell.read[-1]["tenants"][0]["after"] == [1, 12, 4]
    assert _told() == ["evt_1_10_1", "evt_1_12_4"]
    assert NotificationEvent.objects.first().source == f"cell/{cell.name}"


def test_who_is_overtaken_keeps_nothing(cell: StandInCell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two read at once: the one that is later at the row finds its place moved."""
    tenant = TenantFactory()
    made(tenant, url=_HOOK)
    reading.read_feeds()
    cell.feed[tenant.public_id] = [_event((1, 10, 1))]

    def overtaken(*args: Any, **more: Any) -> Any:
        answer = call_cell(*args, **more)
        FeedPlace.objects.update(place=[1, 10, 1])
        return answer

    monkeypatch.setattr(reading, "call_cell", overtaken)
    assert reading.read_feeds() == 0
    assert _told() == []


def test_told_once_after_a_place_was_lost(cell: StandInCell) -> None:
    tenant = TenantFactory()
    made(tenant, url=_HOOK)
    cell.feed[tenant.public_id] = [_event((1, 10, 1))]
    reading.read_feeds()
    FeedPlace.objects.update(place=None)
    reading.read_feeds()
    assert _told() == ["evt_1_10_1"]


def test_nobody_is_asked_about_who_wants_nothing(cell: StandInCell) -> None:
    wanting, silent = TenantFactory(), TenantFactory()
    rule = made(wanting, url=_HOOK).rule
    made(silent, url=_HOOK, kinds=["invoice.final"])
    reading.read_feeds()
    assert [one["tenant_id"] for one in cell.read[-1]["tenants"]] == [wanting.public_id]
    NotificationRule.objects.filter(pk=rule.pk).update(enabled=False)
    reading.read_feeds()
    assert not FeedPlace.objects.exists(), "whoever asks anew begins with what happens then"


def test_operators_rules_hear_all_tenants(cell: StandInCell) -> None:
    tenant = TenantFactory()
    made(None, url=_HOOK)
    cell.feed[tenant.public_id] = [_event((1, 10, 1))]
    assert reading.read_feeds() == 1


def test_a_cell_that_is_away_holds_up_no_other(cell: StandInCell) -> None:
    CellFactory(name="away-1", url="http://127.0.0.1:1")
    tenant = TenantFactory(cell=cell.name)
    away = TenantFactory(cell="away-1")
    for one in (tenant, away):
        made(one, url=_HOOK)
    cell.feed[tenant.public_id] = [_event((1, 10, 1))]
    assert reading.read_feeds() == 1
    with pytest.raises(CellUnreachable):
        reading.read_feed(Cell.objects.get(pk="away-1"), until=float("inf"))


def test_a_takeover_is_told_to_operators_and_tenants(cell: StandInCell) -> None:
    tenant = TenantFactory()
    made(tenant, url=_HOOK, kinds=["*"])
    made(None, url=_HOOK, kinds=["cell.taken_over"])
    cell.epoch = 3
    reading.read_feeds()
    assert _told() == [], "that is how it was when it was first seen"
    cell.epoch = 7
    reading.read_feeds()
    reading.read_feeds()
    assert _told() == [f"cell.taken_over:{cell.name}:7"] * 2
    assert NotificationEvent.objects.filter(tenant_id=None).get().data["epoch_before"] == 3


def test_keys_that_end_soon(cell: StandInCell) -> None:
    tenant = TenantFactory()
    made(tenant, url=_HOOK, kinds=["api_key.expiring"])
    now = datetime.now(UTC)
    for days in (2, 30):
        ends = now + timedelta(days=days)
        key = create_api_key(
            tenant_id=tenant.id, name=f"in {days}", scopes=["jobs:read"], expires_at=ends,
            actor=ACTOR, reason=REASON,
        ).key  # fmt: skip
        type(key).objects.filter(pk=key.pk).update(created_at=now - timedelta(days=3))
    assert watching.watch_keys() == 1
    assert watching.watch_keys() == 0
    assert NotificationEvent.objects.get().data["name"] == "in 2"


def test_silent_cells(cell: StandInCell) -> None:
    made(None, url=_HOOK, kinds=["cell.silent", "cell.answering"])
    assert watching.watch_cells() == 0
    past = datetime.now(UTC) - timedelta(minutes=2)
    Cell.objects.filter(pk=cell.name).update(status_error="no answer", status_at=past)
    assert [watching.watch_cells(), watching.watch_cells()] == [1, 0]
    Cell.objects.filter(pk=cell.name).update(status_error="", status_at=datetime.now(UTC))
    assert [watching.watch_cells(), watching.watch_cells()] == [1, 0]
    kinds = NotificationEvent.objects.order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["cell.silent", "cell.answering"]
