"""Money on the command line: what is sent, what is shown, what is asked first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.component.controlplane.client.conftest import Server

LINE = {
    "n": 2, "kind": "usage", "description": "Job runs, HOME_ASYNC", "metric": "job_runs",
    "region_policy": "HOME_ASYNC", "start": "2026-10-01", "end": "2026-11-01", "tier": 0, "quantity": 1000000,
    "unit_price": "12 per 1,000,000", "price_book": "2026-01 list", "exact": "12", "amount": "12.00",
}  # fmt: skip
INVOICE = {
    "invoice_id": "ivc_1", "tenant_id": "tnt_1", "number": "CH-000001", "state": "FINAL",
    "period_start": "2026-10-01", "period_end": "2026-11-01", "currency": "USD", "net": "12.00",
    "taxes": "0.00", "total": "12.00", "credited": "0.00", "due": "12.00", "due_on": "2026-11-17",
    "payment_url": None, "digest": "d",
}  # fmt: skip
BUDGET = {
    "amount": "50.00", "currency": "USD", "capped": True, "grace_hours": 12, "month": "2026-11",
    "spent": "26.00", "percent": 52,
    "alerts": [{"threshold": 50, "spent": "25.10", "at": "2026-11-20T10:00:00Z"}],
    "low_delayed_since": None, "version": 1,
}  # fmt: skip
STATEMENT = {"currency": "USD", "net": "12.00", "taxes": "2.28", "total": "14.28", "lines": [LINE]}
BOOK = {
    "name": "2027-01 list", "currency": "USD", "effective_from": "2027-01-01",
    "prices": [{"metric": "job_runs", "model": "unit", "amount": "5", "per": 1000000}], "minimum": "10",
}  # fmt: skip
STORED = {
    **BOOK, "price_book_id": "pbk_1", "note": "", "created_by": "key:1", "created_at": "2026-11-30T00:00:00Z",
}  # fmt: skip
PREVIEW = {
    "month": "2026-10", "currency": "USD", "tenants": 3, "more": 1, "less": 0, "before": "12.00",
    "after": "15.00", "changes": [{"tenant_id": "tnt_1", "before": "12.00", "after": "15.00"}],
}  # fmt: skip
NO_BUDGET = (404, {"code": "NOT_FOUND", "detail": "There is no budget.", "status": 404})


def test_invoices_are_listed_and_shown(server: Server, cli: Any) -> None:
    page = {"items": [INVOICE], "next_cursor": None}
    server.script = [page, page, {**INVOICE, "recipient": {}, "lines": [LINE], "credit_notes": []}]
    shown = cli("invoices", "list", "--state", "final")
    assert "CH-000001" in shown.stdout
    assert server.received[0].query["state"] == "FINAL"
    assert json.loads(cli("invoices", "list", "--json").stdout) == [INVOICE]
    assert "Job runs, HOME_ASYNC" in cli("invoices", "show", "ivc_1").stdout
    server.script = [{"items": [], "next_cursor": None}]
    assert "No invoices." in cli("invoices", "list").stdout


def test_a_line_leads_to_days_and_records(server: Server, cli: Any) -> None:
    record = {
        "minute": "2026-10-01T00:05:00Z",
        "cell": "c1",
        "store": 0,
        "epoch": 1,
        "host": "h",
        "quantity": 7,
    }
    day = {"day": "2026-10-01", "cell": "c1", "quantity": 14}
    server.script = [{"line": LINE, "days": [day], "records": [], "next_cursor": None}]
    assert "2026-10-01" in cli("invoices", "show", "ivc_1", "--line", "2").stdout
    first = {"line": LINE, "days": [], "records": [record], "next_cursor": "more"}
    server.script = [first, {**first, "next_cursor": None}]
    told = json.loads(cli("invoices", "show", "ivc_1", "--line", "2", "--day", "2026-10-01", "--json").stdout)
    assert (told["records"], told["next_cursor"]) == ([record, record], None)
    assert server.received[-1].query == {"day": "2026-10-01", "cursor": "more"}
    assert cli("invoices", "show", "ivc_1", "--day", "2026-10-01").exit_code == 2


def test_a_pdf_is_saved_and_no_file_is_lost(server: Server, cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "paper.pdf"
    whole = {**INVOICE, "recipient": {}, "lines": [], "credit_notes": []}
    server.script = [whole, "%PDF-1.4 paper", whole, "%PDF-1.4 other"]
    told = json.loads(cli("invoices", "pdf", "ivc_1", "-o", str(file), "--json").stdout)
    assert told == {"file": str(file), "bytes": 14}
    again = cli("invoices", "pdf", "ivc_1", "-o", str(file))
    assert (again.exit_code, "is there already" in again.stderr) == (2, True)
    assert file.read_bytes() == b"%PDF-1.4 paper"
    server.script = [whole, "%PDF-1.4 other"]
    assert cli("invoices", "pdf", "ivc_1", "-o", str(file), "--force").exit_code == 0
    assert file.read_bytes() == b"%PDF-1.4 other"


def test_a_budget_is_shown_set_and_removed(server: Server, cli: Any) -> None:
    server.script = [BUDGET, BUDGET]
    assert "52 %, 26.00 USD in 2026-11" in cli("budget", "show").stdout
    assert json.loads(cli("budget", "set", "50", "--cap", "--grace-hours", "12", "--json").stdout) == BUDGET
    sent = server.received[-1]
    assert (sent.method, sent.body) == ("PUT", {"amount": "50", "capped": True, "grace_hours": 12})
    server.script = [NO_BUDGET]
    none = cli("budget", "show")
    assert (none.exit_code, "clockhouse budget set 100" in none.stderr) == (4, True)
    server.script = [BUDGET]
    asked = cli("budget", "remove")
    assert (asked.exit_code, "50.00 USD a month" in asked.stderr) == (2, True)
    server.script = [BUDGET, (204, "")]
    assert cli("budget", "remove", "--yes").exit_code == 0
    assert server.received[-1].method == "DELETE"


def test_forecasts_of_a_month_and_of_a_schedule(server: Server, cli: Any) -> None:
    server.script = [
        {
            "month": "2026-11", "today": "2026-11-30", "so_far": STATEMENT,
            "expected": {**STATEMENT, "net": "13.00"},
        },
        {
            "since": "2026-11-30", "days": 30, "occurrences": 2880, "attempts": 2900, "currency": "USD",
            "total": "0.04", "exact": "0.0352", "parts": [],
        },
    ]  # fmt: skip
    assert "13.00 USD before taxes" in cli("forecast").stdout
    assert "0.04 USD before taxes" in cli("forecast", "--every", "15m").stdout
    assert server.received[-1].body == {"schedule": {"type": "RATE", "every_seconds": 900}}
    assert cli("forecast", "--every", "15m", "--occurrences", "3").exit_code == 2


@pytest.mark.parametrize("name", ["book.json", "book.toml"])
def test_a_price_book_is_made_after_its_effect_was_seen(
    server: Server, cli: Any, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    prices = '[[prices]]\nmetric = "job_runs"\nmodel = "unit"\namount = "5"\nper = 1000000\n'
    head = 'name = "2027-01 list"\ncurrency = "USD"\neffective_from = 2027-01-01\nminimum = "10"\n'
    file.write_text(json.dumps(BOOK) if name.endswith("json") else head + prices)
    server.script = [PREVIEW]
    asked = cli("price-books", "create", str(file))
    assert asked.exit_code == 2
    assert "1 pay more, 0 less" in " ".join(asked.stderr.split())
    assert [r.path for r in server.received] == ["/v1/admin/price-books:preview"]
    server.script = [PREVIEW, (201, STORED)]
    made = cli("price-books", "create", str(file), "--yes", "--reason", "a new year", "--json")
    assert json.loads(made.stdout) == STORED
    assert server.received[-1].body == {**BOOK, "reason": "a new year"}
    assert "idempotency-key" in server.received[-1].headers
    server.script = [PREVIEW]
    assert "tnt_1" in cli("price-books", "preview", str(file), "--month", "2026-10").stdout
    assert server.received[-1].body["month"] == "2026-10"


def test_price_books_are_listed_shown_and_withdrawn(server: Server, cli: Any) -> None:
    server.script = [{"items": [STORED], "next_cursor": None}, STORED, STORED, (204, "")]
    assert "2027-01 list" in cli("price-books", "list", "--currency", "USD").stdout
    assert json.loads(cli("price-books", "show", "pbk_1").stdout) == STORED
    assert "is withdrawn" in cli("price-books", "withdraw", "pbk_1", "--yes", "--reason", "a slip").stdout
    assert (server.received[-1].path, server.received[-1].body) == (
        "/v1/admin/price-books/pbk_1:withdraw", {"reason": "a slip"},
    )  # fmt: skip
