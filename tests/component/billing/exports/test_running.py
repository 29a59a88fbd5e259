"""Exports are whole or not there; a second try gives the same bytes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.db import DatabaseError, connection, transaction

from billing.exports import running
from billing.exports.focus_rules import faults, parsed
from billing.exports.machine import Dataset, ExportState, Format
from billing.exports.models import Export
from billing.exports.places import folder_of
from billing.exports.requesting import expire
from billing.hooks import BILLING
from billing.invoices import drafting, settling
from billing.models import UsageHour
from billing.pricing import accounts, contracts
from controlplane.events.models import AuditEvent
from tests.component.billing.exports.conftest import NOVEMBER, OCTOBER, asked, files_of, used_in_october
from tests.component.billing.months import close, late

pytestmark = pytest.mark.django_db
_BY: dict[str, Any] = {"actor": BILLING, "reason": "a test"}


def done(export: Export) -> Export:
    assert running.run(export.id), Export.objects.get(pk=export.pk).error
    export.refresh_from_db()
    assert export.state == ExportState.DONE
    return export


def invoiced(tenant: Any) -> Any:
    draft = drafting.open_draft(tenant_id=tenant.id, month=OCTOBER, **_BY)
    assert draft is not None
    return settling.finalize(invoice_id=draft.id, now=datetime.now(UTC), **_BY)


def data(folder: Path, export: Export) -> list[dict[str, str]]:
    """The rows of all CSV files, in the order of the manifest."""
    found = files_of(folder, export)
    return [
        row
        for file in export.files
        if file["kind"] == "data"
        for row in csv.DictReader(io.StringIO(found[file["name"]].decode()))
    ]


def test_a_usage_export_is_whole(tenant: Any, folder: Path) -> None:
    export = done(asked(tenant))
    found = files_of(folder, export)
    assert found.keys() == {file["name"] for file in export.files}
    assert [file["kind"] for file in export.files] == ["data", "schema", "manifest"]
    for file in export.files:
        content = found[file["name"]]
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    assert [(row["hour"], row["cell"], row["quantity"]) for row in data(folder, export)] == [
        ("2026-10-05T07:00:00Z", "cell-1", "90000"),
        ("2026-10-05T07:00:00Z", "cell-2", "1010000"),
        ("2026-10-05T08:00:00Z", "cell-1", "2000000"),
    ]
    manifest = json.loads(found["manifest.json"])
    assert (manifest["rows"], manifest["period_start"], manifest["period_end"]) == (
        3,
        "2026-10-01",
        "2026-11-01",
    )
    assert manifest["files"] == export.files[:2]
    assert (export.rows_done, export.rows_expected, export.attempts) == (3, 3, 1)
    assert AuditEvent.objects.filter(action="export.request", subject=export.public_id).count() == 1


def test_focus_of_an_invoice_adds_up_to_it(tenant: Any, folder: Path) -> None:
    accounts.edit_account(tenant_id=tenant.id, changes={"taxes": [{"name": "VAT", "rate": "0.19"}]}, **_BY)
    invoice = invoiced(tenant)
    export = done(asked(tenant, Dataset.FOCUS))
    rows = [parsed(row) for row in data(folder, export)]
    assert faults(rows, {invoice.number: invoice.total}) == []
    assert {row["x_PriceBookVersion"] for row in rows} == {"2026-01 list", None}
    usage = [row for row in rows if row["ChargeCategory"] == "Usage"]
    assert [
        (r["SkuPriceId"], r["x_CellId"], r["ChargePeriodStart"].hour, r["ConsumedQuantity"]) for r in usage
    ] == [
        ("job_runs.HOME_ASYNC.included", "cell-1", 7, 90_000),
        ("job_runs.HOME_ASYNC.included", "cell-2", 7, 10_000),
        ("job_runs.HOME_ASYNC.tier-1", "cell-2", 7, 1_000_000),
        ("job_runs.HOME_ASYNC.tier-1", "cell-1", 8, 2_000_000),
    ]
    assert [r["BilledCost"] for r in usage] == [0, 0, 12, 24]
    assert json.loads(files_of(folder, export)["manifest.json"])["price_books"] == ["2026-01 list"]
    schema = json.loads(files_of(folder, export)["schema.json"])
    assert schema["Schema"]["FocusVersion"] == "1.2"


def test_focus_of_what_is_not_invoiced_yet(tenant: Any, folder: Path) -> None:
    rows = [parsed(row) for row in data(folder, done(asked(tenant, Dataset.FOCUS)))]
    assert faults(rows, {}) == []
    assert sum(row["BilledCost"] for row in rows) == 36


def test_credit_notes_late_usage_and_contracts(tenant: Any, folder: Path) -> None:
    price = {"metric": "job_runs", "region_policy": "HOME_ASYNC", "model": "package", "amount": "1"}
    contracts.create_contract(
        tenant_id=tenant.id, effective_from=OCTOBER, prices=[{**price, "size": 100_000}], **_BY
    )
    invoice = invoiced(tenant)
    assert invoice.total == 31
    late(tenant, NOVEMBER, (OCTOBER, "job_runs", "HOME_ASYNC", 500_000))
    close(tenant, NOVEMBER)
    draft = drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY)
    assert draft is not None
    second = settling.finalize(invoice_id=draft.id, now=datetime.now(UTC), **_BY)
    note = settling.credit(
        invoice_id=invoice.id, lines=[{"n": 1, "amount": "4"}], now=datetime(2026, 11, 20, tzinfo=UTC), **_BY
    )
    export = done(asked(tenant, Dataset.FOCUS, until=NOVEMBER.replace(month=12)))
    rows = [parsed(row) for row in data(folder, export)]
    payable = {invoice.number: invoice.total, second.number: second.total, note.number: -note.total}
    assert faults(rows, payable) == []
    listed = [row for row in rows if row["SkuPriceId"] == "job_runs.HOME_ASYNC.tier-1"]
    assert {row["PricingUnit"] for row in listed} == {"100000 Runs"}
    assert sum(row["PricingQuantity"] for row in listed) == 31
    assert {row["ListUnitPrice"] for row in listed} == {Decimal("1.2")}


def test_a_void_invoice_is_of_nothing(tenant: Any, folder: Path) -> None:
    invoice = invoiced(tenant)
    settling.void(invoice_id=invoice.id, now=datetime.now(UTC), **_BY)
    rows = [parsed(row) for row in data(folder, done(asked(tenant, Dataset.FOCUS)))]
    assert {row["InvoiceId"] for row in rows} == {None}
    lines = data(folder, done(asked(tenant, Dataset.INVOICE_LINES)))
    assert {(row["number"], row["state"]) for row in lines} == {(invoice.number, "VOID")}


def test_invoice_lines_as_parquet_are_exact_decimals(tenant: Any, folder: Path) -> None:
    invoice = invoiced(tenant)
    export = done(asked(tenant, Dataset.INVOICE_LINES, file_format=Format.PARQUET))
    found = files_of(folder, export)
    table = pq.read_table(io.BytesIO(found[export.files[0]["name"]]))
    assert str(table.schema.field("amount").type) == "decimal128(38, 3)"
    said = [(row["number"], int(row["line"]), row["amount"], row["description"]) for row in table.to_pylist()]
    assert said == [
        (invoice.number, 1, Decimal("0.000"), "Job runs, HOME_ASYNC, included"),
        (invoice.number, 2, Decimal("36.000"), "Job runs, HOME_ASYNC"),
    ]


@pytest.mark.parametrize("dataset", list(Dataset))
@pytest.mark.parametrize("file_format", list(Format))
def test_a_second_try_gives_the_same_bytes(
    tenant: Any, folder: Path, settings: Any, dataset: Dataset, file_format: Format
) -> None:
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "rows_per_file": 2}
    invoiced(tenant)
    export = done(asked(tenant, dataset, file_format=file_format))
    before = files_of(folder, export)
    Export.objects.filter(pk=export.pk).update(state="REQUESTED")
    assert files_of(folder, done(export)) == before
    assert len([file for file in export.files if file["kind"] == "data"]) == -(-export.rows_done // 2)


def test_nothing_is_a_file_with_names(control: None, folder: Path) -> None:
    export = done(asked(None, Dataset.USAGE))
    (first, *_) = export.files
    assert first["rows"] == 0
    assert (
        files_of(folder, export)[first["name"]].decode()
        == "tenant_id,hour,metric,region_policy,cell,quantity\n"
    )


def test_operators_export_everybody(tenant: Any, folder: Path) -> None:
    other = used_in_october()
    rows = data(folder, done(asked(None)))
    assert [row["tenant_id"] for row in rows] == sorted([tenant.public_id, other.public_id] * 3)
    assert {row["tenant_id"] for row in data(folder, done(asked(other)))} == {other.public_id}
    focus = [parsed(row) for row in data(folder, done(asked(None, Dataset.FOCUS)))]
    assert faults(focus, {}) == []
    assert {row["SubAccountId"] for row in focus} == {tenant.public_id, other.public_id}


def test_pages_join_without_a_gap(tenant: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.exports.reading._PAGE", 1)
    used_in_october()
    invoiced(tenant)
    assert len(data(folder, done(asked(None)))) == 6
    assert len(data(folder, done(asked(None, Dataset.INVOICE_LINES)))) == 2
    assert len(data(folder, done(asked(None, Dataset.FOCUS)))) == 8


# --- what goes wrong -----------------------------------------------------------------------
def test_only_one_takes_it(tenant: Any, folder: Path) -> None:
    export = asked(tenant)
    assert running.take(export.id) is not None
    assert running.take(export.id) is None
    assert not running.run(export.id)


def test_a_lapsed_lease_is_taken_over_and_the_first_learns_it(tenant: Any, folder: Path) -> None:
    export = asked(tenant)
    first = running.take(export.id)
    assert first is not None
    assert export.id not in running.due()
    Export.objects.filter(pk=export.pk).update(leased_until=datetime.now(UTC) - timedelta(seconds=1))
    assert export.id in running.due()
    done(export)
    with pytest.raises(running.Overtaken):
        first.tell(5, now=True)
    with pytest.raises(running.Overtaken):
        first.finish([], 0)
    first.failed("too late", for_good=True)
    export.refresh_from_db()
    assert (export.state, export.attempts, export.error) == ("DONE", 2, "")


def test_whoever_is_overtaken_leaves_nothing_that_counts(
    control: None, folder: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker wakes up behind its lease; the export is what the other wrote."""
    tenant = used_in_october(closed=False)
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "rows_per_file": 1}
    export = asked(tenant)
    sleeper = running.take(export.id)
    assert sleeper is not None
    original = running.Held.tell
    told: list[int] = []

    def tell(held: running.Held, rows: int, **more: Any) -> None:
        told.append(rows)
        if held is sleeper and len(told) == 3:
            Export.objects.filter(pk=export.pk).update(leased_until=datetime.now(UTC) - timedelta(seconds=1))
            UsageHour.objects.filter(tenant_id=tenant.id, quantity=90_000).update(quantity=90_001)
            done(export)
        original(held, rows, **more)

    monkeypatch.setattr(running.Held, "tell", tell)
    with pytest.raises(running.Overtaken):
        running._write(sleeper)
    export.refresh_from_db()
    assert sum(int(row["quantity"]) for row in data(folder, export)) == 3_100_001
    assert files_of(folder, export).keys() == {file["name"] for file in export.files}


def test_a_place_that_is_away_is_tried_again_and_then_given_up(
    tenant: Any, folder: Path, tmp_path: Path
) -> None:
    folder.write_text("no folder")
    export = asked(tenant)
    for attempt in range(1, 9):
        Export.objects.filter(pk=export.pk).update(due_at=datetime.now(UTC) - timedelta(seconds=1))
        assert not running.run(export.id)
        export.refresh_from_db()
        assert (export.attempts, export.lease) == (attempt, None)
        assert "lake's folder" in export.error or "Not a directory" in export.error
    assert export.state == ExportState.FAILED
    assert not running.run(export.id)


def test_what_kills_its_workers_is_given_up(tenant: Any, folder: Path) -> None:
    export = asked(tenant)
    Export.objects.filter(pk=export.pk).update(
        state="RUNNING", lease=uuid.uuid4(), leased_until=datetime.now(UTC) - timedelta(seconds=1), attempts=8
    )
    assert not running.run(export.id)
    export.refresh_from_db()
    assert (export.state, export.error) == ("FAILED", "its workers ended before it was written")


def test_leftovers_of_a_crash_are_swept_away(tenant: Any, folder: Path) -> None:
    export = asked(tenant)
    mine = folder / folder_of(export)
    mine.mkdir(parents=True)
    (mine / "usage-2026-10-01-00001-0123456789ab.csv.4711.partial").write_text("half")
    (mine / "usage-2026-10-01-00001-0123456789ab.csv").write_text("of a try that was overtaken")
    done(export)
    assert files_of(folder, export).keys() == {file["name"] for file in export.files}


def test_expired_exports_are_removed(tenant: Any, folder: Path) -> None:
    kept, old = done(asked(tenant)), done(asked(tenant))
    now = datetime.now(UTC)
    Export.objects.filter(pk=old.pk).update(expires_at=now - timedelta(seconds=1))
    assert expire(now) == 1
    old.refresh_from_db()
    assert (old.state, old.files, files_of(folder, old)) == ("EXPIRED", [], {})
    assert not (folder / folder_of(old)).exists()
    assert files_of(folder, kept).keys() == {file["name"] for file in kept.files}
    assert expire(now) == 0


def test_scratch_folders_of_the_killed_are_forgotten(
    control: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("clockhouse-export-old", "clockhouse-export-new", "another-old"):
        (tmp_path / name).mkdir()
        if name.endswith("old"):
            os.utime(tmp_path / name, (0, 0))
    expire(datetime.now(UTC))
    assert {path.name for path in tmp_path.iterdir()} == {"clockhouse-export-new", "another-old"}


def test_the_database_refuses_states_that_are_none(tenant: Any, folder: Path) -> None:
    export = asked(tenant)
    for wrong in ({"state": "ODD"}, {"state": "RUNNING"}, {"lease": uuid.uuid4()}, {"about_tenant_id": None}):
        with pytest.raises(DatabaseError), transaction.atomic():
            Export.objects.filter(pk=export.pk).update(**wrong)
    assert connection.is_usable()
