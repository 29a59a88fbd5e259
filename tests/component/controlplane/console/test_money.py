"""Usage, budget and invoices: what each role sees, that figures lead to what they were added up from, and
that nothing of another tenant is there."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from billing.budgets.models import Budget, BudgetAlert
from billing.hooks import BILLING
from billing.invoices.drafting import open_draft
from billing.invoices.models import Invoice
from billing.invoices.settling import credit, finalize
from billing.models import MeterRecord
from billing.stripe.models import StripeInvoice
from controlplane.events.models import AuditEvent
from tests.component.billing.months import close, used
from tests.component.controlplane.console.cell import JOB_ID, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import MembershipFactory, UserFactory

pytestmark = pytest.mark.django_db
MONTH = date(2026, 10, 1)
RUNS = 1_100_000


def _invoice(who: Signed) -> Invoice:
    """A month that is over, closed and invoiced: 12.00."""
    tenant = who.membership.tenant
    used(tenant, (MONTH, "job_runs", "HOME_ASYNC", RUNS))
    for minute in range(60):
        MeterRecord.objects.create(
            tenant_id=tenant.id, minute=datetime(2026, 10, 1, 0, minute, tzinfo=UTC), metric="job_runs",
            region_policy="HOME_ASYNC", cell="cell-1", store=0, epoch=1, host="h-1", quantity=minute + 1,
        )  # fmt: skip
    close(tenant, MONTH)
    draft = open_draft(tenant_id=tenant.id, month=MONTH, actor=BILLING, reason="")
    assert draft is not None
    return finalize(invoice_id=draft.id, now=datetime.now(UTC), actor=BILLING, reason="")


def _get(who: Signed, path: str, status: int = 200) -> str:
    answer = who.browser.get(who.base + path)
    assert answer.status_code == status, path
    return answer.content.decode()


def _with_role(owner: Signed, role: str) -> Signed:
    membership = MembershipFactory(tenant=owner.membership.tenant, user=UserFactory(), role=role)
    other = sign_in(role)
    other.browser.force_login(membership.user, backend="django.contrib.auth.backends.ModelBackend")
    return Signed(other.browser, membership)


def test_every_role_reads_and_only_admins_set(owner: Signed) -> None:
    invoice = _invoice(owner)
    paths = ("/usage", "/budget", "/invoices/", f"/invoices/{invoice.public_id}/")
    for role in ("owner", "admin", "developer", "viewer"):
        person = _with_role(owner, role)
        for path in paths:
            _get(person, path)
        allowed = role in ("owner", "admin")
        assert ("Set the budget" in _get(person, "/budget")) is allowed
        answer = person.browser.post(
            owner.base + "/budget", {"amount": "50", "grace_hours": "24", "version": "0"}
        )
        assert answer.status_code == (302 if allowed else 403)
        assert person.browser.get(owner.base + "/budget/remove").status_code == (200 if allowed else 403)
        Budget.objects.all().delete()


def test_what_is_anothers_is_not_found(owner: Signed) -> None:
    stranger = sign_in("owner")
    invoice = _invoice(stranger)
    note = credit(invoice_id=invoice.id, lines=None, now=datetime.now(UTC), actor=BILLING, reason="late")
    before = contents()
    it = f"/invoices/{invoice.public_id}/"
    paths = (it, f"{it}pdf", f"{it}lines/2", f"{it}credit-notes/{note.public_id}/pdf")
    for path in (*paths, "/invoices/nonsense/"):
        _get(owner, path, 404)
        assert owner.browser.get(stranger.base + path).status_code == 404
    records = "/usage/records?day=2026-10-01&metric=job_runs&policy=HOME_ASYNC"
    assert "There is no record" in _get(owner, records)
    assert contents() == before
    for path in (*paths, records):
        assert stranger.browser.get(stranger.base + path).status_code == 200


def test_an_invoice_leads_to_its_meter_records(owner: Signed) -> None:
    invoice = _invoice(owner)
    assert invoice.number in _get(owner, "/invoices/?state=FINAL")
    assert "No invoice is paid" in _get(owner, "/invoices/?state=PAID")
    page = _get(owner, f"/invoices/{invoice.public_id}/")
    assert "Please pay by transfer" in page
    for step in ("lines/2", "/usage/records?day=2026-10-01"):
        (link,) = {found for found in re.findall(r'href="([^"]+)"', page) if step in found}
        answer = owner.browser.get(link.replace("&amp;", "&"))
        assert answer.status_code == 200
        page = answer.content.decode()
    assert page.count("<tr data-row") == 50
    (link,) = re.findall(r'rel="next" href="([^"]+)"', page)
    rest = owner.browser.get(link.replace("&amp;", "&")).content.decode()
    assert rest.count("<tr data-row") == 10
    for wrong in (
        "day=2026-10-01&metric=job_runs&cursor=x",
        "day=yesterday&metric=job_runs",
        "day=2026-10-01&metric=lines",
        "day=9999-12-31&metric=job_runs",
    ):
        _get(owner, f"/usage/records?{wrong}", 404)
    pdf = owner.browser.get(f"{owner.base}/invoices/{invoice.public_id}/pdf")
    assert (pdf["Content-Type"], pdf.content[:5]) == ("application/pdf", b"%PDF-")
    assert f'filename="{invoice.number}.pdf"' in pdf["Content-Disposition"]


def test_an_invoice_at_stripe_is_paid_there(owner: Signed) -> None:
    invoice = _invoice(owner)
    StripeInvoice.objects.create(
        invoice=invoice, stripe_id="in_1", state="open", payment_url="https://pay.example.com/i"
    )
    assert 'href="https://pay.example.com/i"' in _get(owner, f"/invoices/{invoice.public_id}/")
    credit(invoice_id=invoice.id, lines=None, now=datetime.now(UTC), actor=BILLING, reason="a gift")
    page = _get(owner, f"/invoices/{invoice.public_id}/")
    assert "pay.example.com" not in page
    assert "a gift" in page


def test_drafts_are_the_operators_own(owner: Signed) -> None:
    used(owner.membership.tenant, (MONTH, "job_runs", "HOME_ASYNC", RUNS))
    close(owner.membership.tenant, MONTH)
    draft = open_draft(tenant_id=owner.membership.tenant.id, month=MONTH, actor=BILLING, reason="")
    assert draft is not None
    assert "No invoices yet" in _get(owner, "/invoices/")
    _get(owner, f"/invoices/{draft.public_id}/", 404)


def test_usage_is_shown_by_what_is_asked(cell: Cell, owner: Signed) -> None:
    used(
        owner.membership.tenant,
        (MONTH, "job_runs", "HOME_ASYNC", RUNS), (MONTH, "run_attempts", "HOME_ASYNC", 7),
        (MONTH + timedelta(days=1), "job_runs", "STRICT", 5),
    )  # fmt: skip
    day = _get(owner, "/usage?month=2026-10")
    assert "Thu 1 Oct" in day
    assert "1\u202f100\u202f000" in day
    metric = _get(owner, "/usage?month=2026-10&by=metric")
    assert "1\u202f100\u202f005" in metric
    assert 'id="days-title"' not in metric
    policy = _get(owner, "/usage?month=2026-10&by=region_policy")
    assert "<td>strict</td>" in policy
    narrowed = _get(owner, "/usage?month=2026-10&metric=job_runs&policy=STRICT")
    assert "1\u202f100\u202f000" not in narrowed
    assert "Nothing of that was used" in _get(owner, "/usage?month=2026-10&metric=egress_bytes")
    for odd in ("?month=2026-13", "?month=x&by=everything&metric=x&policy=x"):
        _get(owner, f"/usage{odd}")
    _get(owner, f"/usage?month=2026-10&by=job&cursor={JOB_ID}")
    _get(owner, "/usage?month=2026-10&by=job&cursor=nonsense", 404)


def test_a_budget_is_set_changed_and_removed(owner: Signed) -> None:
    assert "No budget." in _get(owner, "/budget")
    url = owner.base + "/budget"
    form = {"amount": "50", "grace_hours": "12", "capped": "on", "version": "0", "reason": "a quarter"}
    for wrong, said in (
        ({"amount": "much", "grace_hours": "soon"}, ("an amount such as", "a whole number of hours")),
        ({"amount": "0"}, ("an amount above 0",)),
        ({"amount": "1.234"}, ("an amount above 0",)),
        ({"grace_hours": "721"}, ("from 0 to 720",)),
    ):
        answer = owner.browser.post(url, {**form, **wrong})
        assert answer.status_code == 422
        assert all(text in answer.content.decode() for text in said)
    done = owner.browser.post(url, form, follow=True).content.decode()
    assert "The budget is 50.00 USD a month; 0 % of it are used; LOW work waits 12 h after 100 %" in done
    stale = owner.browser.post(url, {**form, "amount": "60"})
    assert (stale.status_code, b"Somebody else changed" in stale.content) == (409, True)
    owner.browser.post(url, {**form, "amount": "60", "capped": "", "version": "1"})
    made = Budget.objects.get(pk=owner.membership.tenant.id)
    assert (made.amount, made.capped, made.version) == (60, False, 2)
    BudgetAlert.objects.create(
        tenant_id=made.tenant_id, month=datetime.now(UTC).date().replace(day=1), threshold=50, budget=60,
        spent=30, currency="USD",
    )  # fmt: skip
    page = _get(owner, "/budget")
    assert page.count("not yet") == 2
    assert b"Nobody is told any more" in owner.browser.get(url + "/remove").content
    owner.browser.post(url + "/remove")
    assert not Budget.objects.exists()
    assert owner.browser.get(url + "/remove").status_code == 302
    log = AuditEvent.objects.filter(tenant_id=made.tenant_id, action__startswith="budget.").order_by("id")
    assert [(e.action, e.reason) for e in log] == [
        ("budget.set", "a quarter"), ("budget.set", "a quarter"), ("budget.remove", ""),
    ]  # fmt: skip


def test_a_schedule_says_what_it_adds(cell: Cell, owner: Signed) -> None:
    page = _get(owner, f"/jobs/{JOB_ID}/")
    assert "Adds in 30 days" in page
    assert "30 runs" in page
    form: dict[str, Any] = {"kind": "CRON", "cron": "0 * * * *", "time_zone": "UTC", "dst_gap": "SKIP"}
    form["dst_overlap"] = "FIRST"
    shown = owner.browser.post(owner.base + "/jobs/preview", form).content.decode()
    assert "720 runs" in shown
