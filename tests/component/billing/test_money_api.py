"""Money over the API: operators set prices and send invoices, tenants read and trace them."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from typing import Any

import pytest

from billing.corrections import correct
from billing.models import ChargeBook, MeterRecord
from controlplane.events.models import AuditEvent
from tests.component.billing.months import close, used
from tests.component.controlplane.factories import TenantFactory
from tests.component.controlplane.signed import operator, tenant_admin

MONTH = date(2026, 10, 1)
PRICE = {"metric": "job_runs", "model": "unit", "amount": "2", "per": 1_000_000}
BOOK = {"name": "next", "currency": "USD", "effective_from": "2099-01-01", "prices": [PRICE]}


@pytest.fixture
def tenant(control: None) -> Any:
    tenant = TenantFactory()
    used(tenant, (MONTH, "job_runs", "HOME_ASYNC", 1_100_000))
    close(tenant, MONTH)
    return tenant


def _record(tenant: Any, minute: int, quantity: int) -> None:
    MeterRecord.objects.create(
        tenant_id=tenant.id, minute=datetime(2026, 10, 1, 0, minute, tzinfo=UTC), metric="job_runs",
        region_policy="HOME_ASYNC", cell="cell-1", store=0, epoch=1, host="h-1", quantity=quantity,
    )  # fmt: skip


@pytest.mark.django_db
def test_a_book_is_made_once_and_withdrawn_before_its_day(control: None) -> None:
    key = {"Idempotency-Key": "one"}
    made = operator().post("/v1/admin/price-books", BOOK, headers=key)
    again = operator().post("/v1/admin/price-books", BOOK, headers=key)
    assert (made.status, again.status, again.json) == (201, 200, made.json)
    path = made.headers["Location"]
    assert operator().get(path).json["prices"] == [
        {"metric": "job_runs", "region_policy": "*", "model": "unit", "included": 0, "amount": "2",
         "per": 1_000_000},
    ]  # fmt: skip
    assert [b["name"] for b in operator().get("/v1/admin/price-books").json["items"]] == [
        "next",
        "2026-01 list",
    ]
    assert operator().post(f"{path}:withdraw", {"reason": "a mistake"}).status == 204
    assert operator().get(path).status == 404
    seeded = ChargeBook.objects.get()
    assert operator().post(f"/v1/admin/price-books/{seeded.public_id}:withdraw").status == 409
    actions = AuditEvent.objects.filter(action__startswith="price_book.").order_by("id")
    assert list(actions.values_list("action", flat=True)) == ["price_book.create", "price_book.withdraw"]


@pytest.mark.django_db
def test_every_fault_of_a_book_is_told_at_once(control: None) -> None:
    answer = operator().post(
        "/v1/admin/price-books",
        {
            "name": "2026-01 list", "currency": "usd", "effective_from": "2026-02-01", "minimum": "0.001",
            "prices": [{"metric": "job_runs", "model": "package", "amount": "1"}],
        },
    )  # fmt: skip
    assert answer.status == 422
    assert [e["pointer"] for e in answer.json["errors"]] == ["/currency", "/prices/0/size", "/name"]
    bad = operator().post("/v1/admin/price-books", {**BOOK, "prices": [{**PRICE, "amount": 2, "x": 1}]})
    assert [e["pointer"] for e in bad.json["errors"]] == ["/prices/0/amount", "/prices/0/x"]


@pytest.mark.django_db
def test_a_preview_says_whom_a_book_would_cost_what(tenant: Any) -> None:
    body = {"currency": "USD", "prices": [PRICE], "month": "2026-10"}
    found = operator().post("/v1/admin/price-books:preview", body).json
    assert (found["tenants"], found["more"], found["less"]) == (1, 0, 1)
    assert found["changes"] == [{"tenant_id": tenant.public_id, "before": "12.00", "after": "2.20"}]
    ahead = operator().post("/v1/admin/price-books:preview", {**body, "month": "2099-01"})
    assert [e["pointer"] for e in ahead.json["errors"]] == ["/month"]


@pytest.mark.django_db
def test_from_draft_to_trace(tenant: Any) -> None:
    for minute in range(3):
        _record(tenant, minute, minute + 1)
    draft = operator().post("/v1/admin/invoices", {"tenant_id": tenant.public_id, "month": "2026-10"})
    assert (draft.status, draft.json["state"], draft.json["number"]) == (201, "DRAFT", None)
    invoice_id = draft.json["invoice_id"]
    ours = tenant_admin(tenant)
    assert ours.get("/v1/invoices").json["items"] == []
    assert ours.get(f"/v1/invoices/{invoice_id}").status == 404
    final = operator().post(f"/v1/admin/invoices/{invoice_id}:finalize", {"reason": "checked"})
    assert (final.json["state"], final.json["number"], final.json["due"]) == ("FINAL", "CH-000001", "12.00")
    (listed,) = ours.get("/v1/invoices?state=FINAL").json["items"]
    assert listed["invoice_id"] == invoice_id
    one = ours.get(f"/v1/invoices/{invoice_id}").json
    assert [(line["n"], line["description"], line["amount"]) for line in one["lines"]] == [
        (1, "Job runs, HOME_ASYNC, included", "0.00"), (2, "Job runs, HOME_ASYNC", "12.00"),
    ]  # fmt: skip
    path = f"/v1/invoices/{invoice_id}/lines/2/usage"
    assert ours.get(path).json["days"] == [{"day": "2026-10-01", "cell": "cell-1", "quantity": 1_100_000}]
    first = ours.get(f"{path}?day=2026-10-01&limit=2").json
    rest = ours.get(f"{path}?day=2026-10-01&limit=2&cursor={first['next_cursor']}").json
    assert [r["quantity"] for r in first["records"] + rest["records"]] == [1, 2, 3]
    assert rest["next_cursor"] is None
    made = correct(
        MeterRecord.objects.get(quantity=2), quantity=5, actor="user:op", reason="counted by hand",
        correction_id=uuid.uuid4(),
    )  # fmt: skip
    pages, cursor = [], ""
    while cursor is not None:
        page = ours.get(f"{path}?day=2026-10-01&limit=1{cursor}").json
        pages += page["records"]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    assert [(r["quantity"], r["correction_id"], r["reason"]) for r in pages] == [
        (1, None, None), (2, None, None), (3, str(made.id), "counted by hand"), (3, None, None),
    ]  # fmt: skip
    assert ours.get(f"{path}?day=2026-09-30").status == 404
    assert ours.get(f"/v1/invoices/{invoice_id}/lines/7/usage").status == 404
    other = tenant_admin(TenantFactory())
    for hidden in (f"/v1/invoices/{invoice_id}", f"/v1/invoices/{invoice_id}/pdf", path):
        assert other.get(hidden).status == 404


@pytest.mark.django_db
def test_a_schedule_is_priced(tenant: Any) -> None:
    ours = tenant_admin(tenant)
    found = ours.post("/v1/schedules:forecast", {"schedule": {"type": "RATE", "every_seconds": 60}})
    assert (found.status, found.json["occurrences"], found.json["attempts"]) == (200, 43_200, 43_200)
    daily = {"type": "CRON", "cron": "0 8 * * *", "time_zone": "Europe/Berlin"}
    assert ours.post("/v1/schedules:forecast", {"schedule": daily}).json["occurrences"] == 30
    for body, pointer in (
        ({}, ""),
        ({"schedule": {"type": "CRON", "cron": "61 * * * *", "time_zone": "UTC"}}, "/schedule/cron"),
        ({"schedule": {"type": "RATE", "every_seconds": 60, "color": "red"}}, "/schedule/color"),
        ({"schedule": {"type": "SOMETIMES"}}, "/schedule"),
    ):
        answer = ours.post("/v1/schedules:forecast", body)
        assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.django_db
def test_a_billing_account_is_edited_under_its_version(tenant: Any) -> None:
    path = f"/v1/admin/billing-accounts/{tenant.public_id}"
    before = operator().get(path)
    assert (before.json["currency"], before.json["legal_name"]) == ("USD", tenant.name)
    changed = operator().patch(path, {"taxes": [{"name": "VAT", "rate": "0.19"}]})
    assert changed.json["taxes"] == [{"name": "VAT", "rate": "0.19"}]
    stale = operator().patch(path, {"legal_name": "X"}, headers={"If-Match": before.headers["ETag"]})
    assert stale.status == 412
    wrong = operator().patch(path, {"taxes": [{"name": "VAT", "rate": "19"}]})
    assert [e["pointer"] for e in wrong.json["errors"]] == ["/taxes/0/rate"]
