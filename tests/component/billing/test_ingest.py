"""Meters are taken exactly once, whoever sends them how often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import IntegrityError, InternalError, connection, connections, transaction

from billing.ingest import MalformedRecord, Result, ingest
from billing.models import DirtyDay, MeterConflict, MeterRecord, RouterMark
from cells.contract import MeterRecord as Sent
from cells.contract import Metric
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Tenure
from tests.component.controlplane.factories import CellFactory, TenantFactory
from tests.component.controlplane.signed import SignedClient

NOW = datetime.now(UTC).replace(second=0, microsecond=0)


def _text(minute: datetime) -> str:
    return f"{minute:%Y-%m-%dT%H:%M:%SZ}"


def _record(tenant: Tenant, **changes: Any) -> Sent:
    values: dict[str, Any] = {
        "tenant_id": tenant.public_id, "cell": tenant.placement.cell_id, "store": 0, "epoch": 1,
        "host": "h-1", "minute": _text(NOW), "metric": Metric.JOB_RUNS, "region_policy": "HOME_ASYNC",
        "quantity": 5,
    }  # fmt: skip
    return Sent(**{**values, **changes})


def _resident() -> Tenant:
    """A tenant that has lived on its cell for an hour."""
    tenant: Tenant = TenantFactory()
    Tenure.objects.filter(tenant=tenant).update(since=NOW - timedelta(hours=1))
    return tenant


@pytest.fixture
def tenant(control: None) -> Tenant:
    return _resident()


def _sum() -> int:
    return sum(MeterRecord.objects.values_list("quantity", flat=True))


@pytest.mark.django_db
def test_new_then_identical_then_conflict(tenant: Tenant) -> None:
    record = _record(tenant)
    assert ingest([record]) == [Result.ACCEPTED]
    assert ingest([record]) == [Result.IDENTICAL]
    wrong = msgspec.structs.replace(record, quantity=6)
    assert ingest([wrong]) == [Result.CONFLICT]
    assert ingest([wrong, wrong]) == [Result.CONFLICT, Result.CONFLICT]
    assert _sum() == 5
    alarm = MeterConflict.objects.get()
    assert (alarm.recorded, alarm.refused, alarm.settled_at) == (5, 6, None)


@pytest.mark.django_db
def test_each_part_of_the_key_counts(tenant: Tenant) -> None:
    records = [
        _record(tenant),
        _record(tenant, store=1),
        _record(tenant, epoch=2),
        _record(tenant, host="h-2"),
        _record(tenant, metric=Metric.RUN_ATTEMPTS),
        _record(tenant, region_policy="STRICT"),
        _record(tenant, minute=_text(NOW + timedelta(minutes=1))),
    ]
    assert ingest(records) == [Result.ACCEPTED] * 7
    assert ingest(records[::-1]) == [Result.IDENTICAL] * 7
    assert _sum() == 35


@pytest.mark.django_db
def test_repeats_inside_one_call(tenant: Tenant) -> None:
    record = _record(tenant)
    other = msgspec.structs.replace(record, quantity=6)
    assert ingest([record, record, other, record]) == [
        Result.ACCEPTED, Result.IDENTICAL, Result.CONFLICT, Result.IDENTICAL,
    ]  # fmt: skip
    assert ingest([other, record]) == [Result.CONFLICT, Result.IDENTICAL]
    assert _sum() == 5


@pytest.mark.django_db
def test_only_where_the_tenant_lived_in_that_minute(tenant: Tenant) -> None:
    stranger = _resident()
    elsewhere = CellFactory()
    hour = timedelta(hours=1)
    Tenure.objects.filter(tenant=tenant).update(since=NOW - 2 * hour, until=NOW - hour)
    assert ingest(
        [
            _record(tenant, minute=_text(NOW - 2 * hour)),
            _record(tenant, minute=_text(NOW - hour)),
            _record(tenant, minute=_text(NOW - hour + timedelta(minutes=1))),
            _record(tenant, minute=_text(NOW - 2 * hour - timedelta(minutes=2))),
            _record(tenant, minute=_text(NOW - 2 * hour), cell=elsewhere.name),
            _record(stranger),
        ]
    ) == [
        Result.ACCEPTED, Result.ACCEPTED, Result.NOT_PLACED, Result.NOT_PLACED, Result.NOT_PLACED,
        Result.ACCEPTED,
    ]  # fmt: skip


@pytest.mark.django_db
def test_too_old_and_too_new(tenant: Tenant) -> None:
    Tenure.objects.filter(tenant=tenant).update(since=NOW - timedelta(days=90))
    assert ingest(
        [
            _record(tenant, minute=_text(NOW - timedelta(days=36))),
            _record(tenant, minute=_text(NOW - timedelta(days=34))),
            _record(tenant, minute=_text(NOW + timedelta(days=1))),
        ]
    ) == [Result.TOO_OLD, Result.ACCEPTED, Result.TOO_NEW]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": "tnt_x"}, {"minute": "2026-01-01T00:00:30Z"}, {"minute": "yesterday"}, {"quantity": -1},
        {"host": ""}, {"epoch": -1}, {"store": 256},
    ],
)  # fmt: skip
def test_what_no_sender_means_takes_nothing(tenant: Tenant, changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedRecord, match="/records/1"):
        ingest([_record(tenant), _record(tenant, **changes)])
    assert not MeterRecord.objects.exists()


@pytest.mark.django_db
def test_days_that_changed_are_marked(tenant: Tenant) -> None:
    Tenure.objects.filter(tenant=tenant).update(since=NOW - timedelta(days=5))
    yesterday = NOW - timedelta(days=1)
    ingest([_record(tenant), _record(tenant, minute=_text(yesterday))])
    assert set(DirtyDay.objects.values_list("tenant_id", "day")) == {
        (tenant.id, NOW.date()), (tenant.id, yesterday.date()),
    }  # fmt: skip
    DirtyDay.objects.all().delete()
    ingest([_record(tenant)])
    assert not DirtyDay.objects.exists()


@pytest.mark.django_db
def test_the_ledger_takes_inserts_only(tenant: Tenant) -> None:
    ingest([_record(tenant)])
    for statement in ("UPDATE billing_meter_record SET quantity = 0", "DELETE FROM billing_meter_record"):
        with (
            pytest.raises((InternalError, IntegrityError), match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)


@pytest.fixture
def committed(transactional_db: None, ownership: object) -> Iterator[None]:
    yield
    connections.close_all()


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_the_same_batch_from_many_senders_at_once(committed: None) -> None:
    tenant = _resident()
    records = [_record(tenant, host=f"h-{n}") for n in range(200)]
    results: list[list[Result]] = []

    def send(turn: int) -> None:
        try:
            results.append(ingest(records if turn % 2 else records[::-1]))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 6
    everything = [r for some in results for r in some]
    assert everything.count(Result.ACCEPTED) == 200
    assert everything.count(Result.IDENTICAL) == 1_000
    assert _sum() == 1_000
    assert not MeterConflict.objects.exists()


def _cell_client(tenant: Tenant, **more: Any) -> SignedClient:
    name = tenant.placement.cell_id
    values: dict[str, Any] = {
        "kid": name, "secret": bytes(range(32)), "scopes": ("internal",), "actor": f"cell:{name}",
        "sign_body": True,
    }  # fmt: skip
    return SignedClient(**{**values, **more})


def _body(*records: Sent) -> dict[str, Any]:
    return {"records": [msgspec.to_builtins(r) for r in records]}


@pytest.mark.django_db
def test_a_cell_ships_meters(tenant: Tenant) -> None:
    client = _cell_client(tenant)
    record = _record(tenant)
    answer = client.post(
        "/internal/meters", _body(record, _record(tenant, minute=_text(NOW + timedelta(hours=2))))
    )
    assert (answer.status, answer.json) == (200, {"results": ["accepted", "too_new"]})
    assert client.post("/internal/meters", _body(record)).json == {"results": ["identical"]}
    assert client.post("/internal/meters", _body()).json == {"results": []}


@pytest.mark.django_db
def test_a_router_ships_requests(tenant: Tenant) -> None:
    router = SignedClient(scopes=("internal",), actor="service:router", sign_body=True)
    counted = _record(tenant, cell="router", metric=Metric.API_REQUESTS, region_policy="")
    assert router.post("/internal/meters", _body(counted)).json == {"results": ["accepted"]}
    for forged in (_record(tenant), _record(tenant, cell="router")):
        assert router.post("/internal/meters", _body(forged)).status == 403


@pytest.mark.django_db
def test_routers_say_how_far_they_have_shipped(tenant: Tenant) -> None:
    router = SignedClient(scopes=("internal",), actor="service:router", sign_body=True)
    said = {"host": "router-a", "sealed_until": _text(NOW), "ended": False}
    assert router.post("/internal/meters", {"records": [], "incarnations": [said]}).json == {"results": []}
    assert RouterMark.objects.get().sealed_until == NOW
    for bad in ({"host": "a\0"}, {"sealed_until": "yesterday"}):
        assert router.post("/internal/meters", {"records": [], "incarnations": [said | bad]}).status == 422
    refused = _cell_client(tenant).post("/internal/meters", {"records": [], "incarnations": [said]})
    assert refused.status == 403
    router.post("/internal/meters", {"records": [], "incarnations": [said | {"ended": True}]})
    assert not RouterMark.objects.exists()


@pytest.mark.django_db
def test_meters_of_others_are_refused(tenant: Tenant) -> None:
    other = CellFactory(key=b"q" * 32)
    record = _record(tenant)
    spoken_for = _cell_client(tenant, kid=other.name, secret=b"q" * 32)
    assert spoken_for.post("/internal/meters", _body(record)).status == 403
    requests = _record(tenant, metric=Metric.API_REQUESTS)
    assert _cell_client(tenant).post("/internal/meters", _body(requests)).status == 403
    assert _cell_client(tenant, scopes=("operator",)).post("/internal/meters", _body(record)).status == 403
    for bad in ({"secret": b"z" * 32}, {"kid": "nobody"}, {"sign_body": False}):
        assert _cell_client(tenant, **bad).post("/internal/meters", _body(record)).status == 401
    assert not MeterRecord.objects.exists()


@pytest.mark.django_db
def test_bad_calls(tenant: Tenant) -> None:
    client = _cell_client(tenant)
    assert client.post("/internal/meters", b"{").status == 400
    assert client.post("/internal/meters", {"records": [{}]}).status == 400
    assert client.post("/internal/meters", _body(_record(tenant, quantity=-1))).status == 422
    assert client.post("/internal/meters", _body(*[_record(tenant)] * 5_001)).status == 413
    assert client.get("/internal/meters").status == 405


@pytest.mark.django_db
@pytest.mark.parametrize("host", ['a"b', "a\\", "{a,b}", "NULL", "ä 中", "a'b%s"])
def test_odd_names_are_kept_as_they_are(tenant: Tenant, host: str) -> None:
    record = _record(tenant, host=host)
    assert ingest([record]) == [Result.ACCEPTED]
    assert ingest([record]) == [Result.IDENTICAL]
    assert ingest([msgspec.structs.replace(record, quantity=9)]) == [Result.CONFLICT]
    assert MeterRecord.objects.get().host == MeterConflict.objects.get().host == host
