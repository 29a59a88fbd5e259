"""What is final never changes; and the first list prices."""

from datetime import date

from django.db import migrations

from billing.sql import migration_sql

_SQL = migration_sql(__file__)
_MILLION = 1_000_000
_GIB = 1024**3

_PRICES = [
    {
        "metric": "job_runs", "region_policy": "*", "model": "graduated", "included": 100_000,
        "tiers": [
            {"up_to": 10 * _MILLION, "amount": "12", "per": _MILLION},
            {"up_to": 100 * _MILLION, "amount": "10", "per": _MILLION},
            {"up_to": None, "amount": "8", "per": _MILLION},
        ],
    },
    {
        "metric": "job_runs", "region_policy": "STRICT", "model": "unit", "included": 0,
        "amount": "24", "per": _MILLION,
    },
    {
        "metric": "run_attempts", "region_policy": "*", "model": "unit", "included": 100_000,
        "amount": "1", "per": _MILLION,
    },
    {
        "metric": "workflow_steps", "region_policy": "*", "model": "unit", "included": 20_000,
        "amount": "9", "per": _MILLION,
    },
    {
        "metric": "history_bytes", "region_policy": "*", "model": "unit", "included": _GIB,
        "amount": "0.5", "per": _GIB,
    },
    {
        "metric": "pending_timer_minutes", "region_policy": "*", "model": "unit", "included": 0,
        "amount": "0.01", "per": _MILLION,
    },
    {
        "metric": "stored_byte_minutes", "region_policy": "*", "model": "unit", "included": 0,
        "amount": "0.5", "per": _GIB * 43_800,
    },
    {
        "metric": "api_requests", "region_policy": "*", "model": "unit", "included": _MILLION,
        "amount": "1.5", "per": _MILLION,
    },
    {
        "metric": "egress_bytes", "region_policy": "*", "model": "unit", "included": _GIB,
        "amount": "0.12", "per": _GIB,
    },
]


def _seed(apps, schema_editor):
    apps.get_model("billing", "ChargeBook").objects.create(
        name="2026-01 list",
        currency="USD",
        effective_from=date(2026, 1, 1),
        prices=_PRICES,
        note="First list prices. Replication is part of a run's price.",
        created_by="service:billing",
    )


def _unseed(apps, schema_editor):
    apps.get_model("billing", "ChargeBook").objects.filter(name="2026-01 list").delete()


def _rules(name: str, trigger: str, table: str) -> list:
    return [
        migrations.RunSQL(_SQL[name], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL[trigger], f"DROP TRIGGER unchanged ON {table}"),
    ]


class Migration(migrations.Migration):
    dependencies = [("billing", "0020_charging")]
    operations = [
        migrations.RunPython(_seed, _unseed),
        *_rules("book_unchanged", "book_trigger", "billing_charge_book"),
        *_rules("contract_unchanged", "contract_trigger", "billing_contract"),
        *_rules("invoice_unchanged", "invoice_trigger", "billing_invoice"),
        *_rules("line_unchanged", "line_trigger", "billing_invoice_line"),
        migrations.RunSQL(_SQL["credit_note_trigger"], "DROP TRIGGER append_only ON billing_credit_note"),
    ]
