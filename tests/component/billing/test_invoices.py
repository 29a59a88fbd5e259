"""Invoices: drafted from closed months, numbered without gaps, never changed."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import DatabaseError, connections, transaction

from billing.charging.machine import TRANSITIONS, InvoiceState
from billing.hooks import BILLING
from billing.invoices import drafting, settling, tasks
from billing.invoices.lines import canonical, digest
from billing.invoices.models import CreditNote, Invoice, NumberSeries
from billing.invoices.pdf import credit_note_pdf, invoice_pdf
from billing.pricing import accounts, contracts
from billing.refusals import Conflicting, Invalid
from controlplane.events.models import AuditEvent, OutboxItem
from controlplane.events.outbox import run_item
from tests.component.billing.months import close, late, used
from tests.component.controlplane.factories import MembershipFactory, TenantFactory
from tests.waiting import eventually_sync

OCTOBER, NOVEMBER = date(2026, 10, 1), date(2026, 11, 1)
NOW = datetime(2026, 12, 3, 12, tzinfo=UTC)
RUNS = ("job_runs", "HOME_ASYNC")
_BY: dict[str, Any] = {"actor": BILLING, "reason": "a test"}


@pytest.fixture
def tenant(control: None) -> Any:
    tenant = TenantFactory()
    MembershipFactory(tenant=tenant, role="owner")
    return tenant


def drafted(tenant: Any, month: date = NOVEMBER, quantity: int = 3_100_000) -> Invoice:
    used(tenant, (month + timedelta(days=3), *RUNS, quantity))
    close(tenant, month)
    draft = drafting.open_draft(tenant_id=tenant.id, month=month, **_BY)
    assert draft is not None
    return draft


def final(tenant: Any, **more: Any) -> Invoice:
    return settling.finalize(invoice_id=drafted(tenant, **more).id, now=NOW, **_BY)


def mails() -> list[Any]:
    """What goes out when the outbox is drained."""
    for item in OutboxItem.objects.exclude(topic="push_tenant"):
        assert run_item(item.id)
    return mail.outbox


@pytest.mark.django_db
def test_a_month_becomes_lines_that_add_up(tenant: Any) -> None:
    draft = drafted(tenant)
    lines = drafting.stored_lines(draft)
    assert [(line.metric, line.tier, line.quantity, line.amount) for line in lines] == [
        ("job_runs", -1, 100_000, "0.00"), ("job_runs", 0, 3_000_000, "36.00"),
    ]  # fmt: skip
    assert (draft.state, draft.number, draft.total) == ("DRAFT", "", Decimal("36.00"))
    assert draft.digest == digest(lines)


@pytest.mark.django_db
def test_only_closed_months_are_drafted_and_only_once(tenant: Any) -> None:
    with pytest.raises(Conflicting, match="not closed"):
        drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY)
    first = drafted(tenant)
    again = drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY)
    assert again is not None
    assert again.id == first.id
    assert Invoice.objects.count() == 1
    assert AuditEvent.objects.filter(action="invoice.open").count() == 1


@pytest.mark.django_db
def test_a_month_of_nothing_is_no_invoice(tenant: Any) -> None:
    close(tenant, NOVEMBER)
    assert drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY) is None
    assert not Invoice.objects.exists()


@pytest.mark.django_db
def test_a_final_invoice_has_the_next_number_and_is_mailed_once(tenant: Any) -> None:
    invoice = final(tenant)
    assert (invoice.state, invoice.number, invoice.sequence) == ("FINAL", "CH-000001", 1)
    assert invoice.due_on == date(2026, 12, 17)
    (sent,) = mails()
    assert sent.subject == "Invoice CH-000001 from Clockhouse"
    ((name, content, kind),) = sent.attachments
    assert (name, kind, content[:5]) == ("CH-000001.pdf", "application/pdf", b"%PDF-")
    # The outbox may run it again: nothing more is sent.
    settling.want(topic=settling.MAIL_INVOICE, subject=str(invoice.id))
    assert len(mails()) == 1


@pytest.mark.django_db
def test_numbers_have_no_gaps_even_where_a_transaction_fails(tenant: Any) -> None:
    draft = drafted(tenant)

    class Broken(Exception):
        pass

    def fails() -> None:
        settling.finalize(invoice_id=draft.id, now=NOW, **_BY)
        raise Broken

    with pytest.raises(Broken), transaction.atomic():
        fails()
    assert not NumberSeries.objects.exists()
    numbers = [final(TenantFactory()).number for _ in range(3)]
    assert numbers == ["CH-000001", "CH-000002", "CH-000003"]


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_numbers_taken_at_the_same_time_have_no_gaps(ownership: Any) -> None:
    drafts = [drafted(TenantFactory()) for _ in range(8)]
    done: list[str] = []

    def work(invoice: Invoice) -> None:
        try:
            done.append(settling.finalize(invoice_id=invoice.id, now=NOW, **_BY).number)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(d,)) for d in (*drafts, *drafts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(done)) == [f"CH-{n:06d}" for n in range(1, 9)]
    assert sorted(Invoice.objects.values_list("sequence", flat=True)) == list(range(1, 9))


@pytest.mark.django_db
@pytest.mark.parametrize(("old", "new"), list(itertools.product(InvoiceState, InvoiceState)))
def test_the_database_holds_to_the_table_of_states(tenant: Any, old: InvoiceState, new: InvoiceState) -> None:
    way = {"FINAL": [], "PAID": ["PAID"], "VOID": ["VOID"], "UNCOLLECTIBLE": ["UNCOLLECTIBLE"]}
    invoice = drafted(tenant) if old is InvoiceState.DRAFT else final(tenant)
    for state in way.get(old, []):
        Invoice.objects.filter(pk=invoice.pk).update(state=state)
    allowed = any(old in t.sources and t.destination is new for t in TRANSITIONS) or old is new
    numbered = new is not InvoiceState.DRAFT
    values: dict[str, Any] = {"state": new}
    if old is InvoiceState.DRAFT and numbered:
        values |= {"sequence": 7, "finalized_at": NOW}
    try:
        with transaction.atomic():
            Invoice.objects.filter(pk=invoice.pk).update(**values)
        happened = True
    except DatabaseError:
        happened = False
    assert happened == allowed


@pytest.mark.django_db
def test_what_is_final_refuses_every_change(tenant: Any) -> None:
    invoice = final(tenant)
    line = invoice.lines.first()
    assert line is not None
    for change in (
        lambda: Invoice.objects.filter(pk=invoice.pk).update(total=1),
        lambda: Invoice.objects.filter(pk=invoice.pk).update(recipient={}),
        lambda: Invoice.objects.filter(pk=invoice.pk).delete(),
        lambda: invoice.lines.update(amount=0),
        lambda: invoice.lines.filter(pk=line.pk).delete(),
        lambda: invoice.lines.create(
            n=99, kind="usage", metric="x", start=NOVEMBER, end=NOVEMBER, quantity=1, exact="1", amount=1
        ),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()
    with pytest.raises(Conflicting):
        drafting.recompute(Invoice.objects.get(pk=invoice.pk))


@pytest.mark.django_db
def test_rating_a_final_month_again_gives_the_same_bytes(tenant: Any) -> None:
    invoice = final(tenant)
    accounts.edit_account(tenant_id=tenant.id, changes={"taxes": [{"name": "VAT", "rate": "0.19"}]}, **_BY)
    kept = canonical(drafting.stored_lines(invoice))
    assert canonical(drafting.rated_again(invoice)) == kept


@pytest.mark.django_db
def test_taxes_are_lines_and_follow_the_account(tenant: Any) -> None:
    accounts.edit_account(
        tenant_id=tenant.id,
        changes={
            "taxes": [{"name": "VAT", "rate": "0.19"}],
            "legal_name": "Łódź GmbH",
            "emails": ["a@b.example"],
        },
        **_BY,
    )  # fmt: skip
    invoice = final(tenant)
    assert (invoice.net, invoice.taxes, invoice.total) == (36, Decimal("6.84"), Decimal("42.84"))
    assert invoice.recipient["name"] == "Łódź GmbH"
    assert mails()[0].to == ["a@b.example"]


@pytest.mark.django_db
def test_what_came_late_is_a_line_of_the_next_invoice(tenant: Any) -> None:
    final(tenant, month=OCTOBER, quantity=9_000_000)
    used(tenant, (NOVEMBER, *RUNS, 100_000))
    # 1.1 million more in October: 1.0 of them still in the first tier, 0.1 in the second.
    late(tenant, NOVEMBER, (OCTOBER + timedelta(days=30), *RUNS, 1_200_000))
    close(tenant, NOVEMBER)
    invoice = drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY)
    assert invoice is not None
    line = drafting.stored_lines(invoice)[-1]
    assert (line.kind, line.start, line.end, line.quantity) == (
        "adjustment", "2026-10-01", "2026-11-01", 1_200_000,
    )  # fmt: skip
    # 12 a million up to ten million behind what is included, then 10.
    assert Decimal(line.amount) == Decimal("1.1") * 12 + Decimal("0.1") * 10
    again = settling.finalize(invoice_id=invoice.id, now=NOW, **_BY)
    assert canonical(drafting.rated_again(again)) == canonical(drafting.stored_lines(again))


@pytest.mark.django_db
def test_paying_is_said_once_and_voids_make_room(tenant: Any) -> None:
    invoice = final(tenant)
    assert settling.pay(invoice_id=invoice.id, now=NOW, **_BY).state == "PAID"
    assert settling.pay(invoice_id=invoice.id, now=NOW + timedelta(days=1), **_BY).settled_at == NOW
    with pytest.raises(Conflicting, match="PAID cannot make the move void"):
        settling.void(invoice_id=invoice.id, now=NOW, **_BY)
    other = TenantFactory()
    wrong = final(other)
    settling.void(invoice_id=wrong.id, now=NOW, **_BY)
    again = drafting.open_draft(tenant_id=other.id, month=NOVEMBER, **_BY)
    assert again is not None
    assert again.id != wrong.id
    assert settling.finalize(invoice_id=again.id, now=NOW, **_BY).number == "CH-000003"


@pytest.mark.django_db
def test_what_was_made_void_is_not_written_again_by_itself(tenant: Any) -> None:
    wrong = final(tenant)
    settling.void(invoice_id=wrong.id, now=NOW, **_BY)
    assert tasks.draft_closed(NOW - timedelta(days=800)) == 0
    assert Invoice.objects.count() == 1
    assert drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY) is not None


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_a_credit_note_that_is_being_made_keeps_its_invoice_from_being_void(ownership: Any) -> None:
    invoice = final(TenantFactory())
    refused: list[Exception] = []

    def void() -> None:
        try:
            settling.void(invoice_id=invoice.id, now=NOW, **_BY)
        except Conflicting as e:
            refused.append(e)
        finally:
            connections.close_all()

    other = threading.Thread(target=void)
    with transaction.atomic():
        settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "1"}], now=NOW, **_BY)
        other.start()
        eventually_sync(_somebody_waits)
    other.join()
    assert "has credit notes" in str(refused)
    assert Invoice.objects.get(pk=invoice.pk).state == "FINAL"


def _somebody_waits() -> bool:
    """Whether another session waits for a row that this transaction holds."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks"
            " WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.django_db
def test_no_more_is_credited_than_is_to_be_paid(tenant: Any) -> None:
    final(tenant, month=OCTOBER, quantity=9_000_000)
    used(tenant, (NOVEMBER, *RUNS, 3_100_000))
    late(tenant, NOVEMBER, (OCTOBER + timedelta(days=3), *RUNS, -1_000_000))
    close(tenant, NOVEMBER)
    draft = drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY)
    assert draft is not None
    invoice = settling.finalize(invoice_id=draft.id, now=NOW, **_BY)
    assert [line.amount for line in drafting.stored_lines(invoice)] == ["0.00", "36.00", "-12.00"]
    with pytest.raises(Invalid, match=r"only 24\.00"):
        settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "36"}], now=NOW, **_BY)
    settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "24"}], now=NOW, **_BY)


@pytest.mark.django_db
def test_credit_notes_take_back_lines_with_their_taxes(tenant: Any) -> None:
    accounts.edit_account(tenant_id=tenant.id, changes={"taxes": [{"name": "VAT", "rate": "0.19"}]}, **_BY)
    invoice = final(tenant)
    with pytest.raises(Invalid) as refused:
        settling.credit(
            invoice_id=invoice.id,
            lines=[{"n": 2, "amount": "36.01"}, {"n": 3, "amount": "1"}, {"n": 9, "amount": "1"}],
            now=NOW, **_BY,
        )  # fmt: skip
    assert [pointer for pointer, _ in refused.value.faults] == ["/lines/0/amount", "/lines/1/n", "/lines/2/n"]
    part = settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "10.01"}], now=NOW, **_BY)
    assert (part.number, part.net, part.taxes, part.total) == (
        "CH-C000001", Decimal("10.01"), Decimal("1.90"), Decimal("11.91"),
    )  # fmt: skip
    rest = settling.credit(invoice_id=invoice.id, now=NOW, **_BY)
    assert part.total + rest.total == invoice.total
    assert part.taxes + rest.taxes == invoice.taxes
    assert Invoice.objects.get(pk=invoice.pk).state == "PAID"
    with pytest.raises(Conflicting, match="nothing left"):
        settling.credit(invoice_id=invoice.id, now=NOW, **_BY)
    with pytest.raises(DatabaseError), transaction.atomic():
        CreditNote.objects.update(total=1)
    assert sorted(m.subject for m in mails()) == [
        "Credit note CH-C000001 from Clockhouse", "Credit note CH-C000002 from Clockhouse",
        "Invoice CH-000001 from Clockhouse",
    ]  # fmt: skip


@pytest.mark.django_db
def test_the_same_document_is_the_same_bytes(tenant: Any) -> None:
    invoice = Invoice.objects.get(pk=final(tenant).pk)
    note = settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "1"}], now=NOW, **_BY)
    lines = drafting.stored_lines(invoice)
    assert invoice_pdf(invoice, lines) == invoice_pdf(Invoice.objects.get(pk=invoice.pk), lines)
    assert credit_note_pdf(note, lines) == credit_note_pdf(CreditNote.objects.get(pk=note.pk), lines)


@pytest.mark.django_db
def test_contracts_stand_above_the_book_and_leave_invoiced_days_alone(tenant: Any) -> None:
    price = {"metric": "job_runs", "model": "unit", "amount": "5", "per": 1_000_000}
    contracts.create_contract(
        tenant_id=tenant.id, effective_from=NOVEMBER, prices=[price], minimum="50", **_BY
    )
    invoice = final(tenant, quantity=4_000_000)
    assert [(line.kind, line.amount) for line in drafting.stored_lines(invoice)] == [
        ("usage", "20.00"), ("minimum", "30.00"),
    ]  # fmt: skip
    with pytest.raises(Invalid, match="are invoiced"):
        contracts.create_contract(
            tenant_id=tenant.id, effective_from=date(2026, 11, 15), prices=[price], **_BY
        )
    later = contracts.create_contract(
        tenant_id=tenant.id, effective_from=date(2026, 12, 1), prices=[price], **_BY
    )
    with pytest.raises(Invalid, match="are invoiced"):
        contracts.end_contract(contract_id=later.id, effective_until=date(2026, 11, 20), **_BY)
    assert canonical(drafting.rated_again(invoice)) == canonical(drafting.stored_lines(invoice))


@pytest.mark.django_db
def test_tasks_do_what_is_to_be_done_and_no_more(tenant: Any) -> None:
    others = [TenantFactory() for _ in range(3)]
    for one in (tenant, *others):
        used(one, (NOVEMBER, *RUNS, 2_000_000))
        close(one, NOVEMBER, at=NOW - timedelta(days=2))
    assert tasks.draft_closed(NOW - timedelta(days=70)) == 4
    assert tasks.draft_closed(NOW - timedelta(days=70)) == 0
    assert tasks.finalize_drafts(NOW - timedelta(days=800)) == 0
    far = NOW + timedelta(days=3650)
    assert tasks.finalize_drafts(far) == 4
    assert tasks.finalize_drafts(far) == 0
    assert sorted(Invoice.objects.values_list("sequence", flat=True)) == [1, 2, 3, 4]
