"""The first price book: unit costs in US dollars, from the cost model in billing/README.md."""

from datetime import date
from decimal import Decimal

from django.db import migrations

_MILLION = 1_000_000
_GIB = 1024**3

# (metric, region policy, per, amount)
_PRICES = [
    # About five home writes, an executor's share, cache and history: the home share of a run.
    ("job_runs", "*", _MILLION, "4.47"),
    # A strict run's confirmations keep its connections and slots longer.
    ("job_runs", "STRICT", _MILLION, "5.36"),
    # Attempts beyond the first are counted here as well; the first one's call is in both.
    ("run_attempts", "*", _MILLION, "0.40"),
    ("workflow_steps", "*", _MILLION, "3.40"),
    ("history_bytes", "*", _GIB, "0.25"),
    # One row write in another region: what makes HOME_ASYNC and STRICT cost more than one region.
    ("replicated_writes", "*", _MILLION, "0.625"),
    # A waiting timer is a row and its index entries: 1 KiB at the storage price.
    ("pending_timer_minutes", "*", _MILLION, "0.0055"),
    # 0.25 a GiB-month of 43,800 minutes.
    ("stored_byte_minutes", "*", _GIB * 43_800, "0.25"),
    ("api_requests", "*", _MILLION, "1.00"),
    ("egress_bytes", "*", _GIB, "0.09"),
]


def _seed(apps, schema_editor):
    book = apps.get_model("billing", "PriceBook").objects.create(
        name="2026-01",
        currency="USD",
        effective_from=date(2026, 1, 1),
        note="First unit prices, derived from the cost model.",
    )
    price = apps.get_model("billing", "UnitPrice")
    price.objects.bulk_create(
        price(book=book, metric=metric, region_policy=policy, per=per, amount=Decimal(amount))
        for metric, policy, per, amount in _PRICES
    )


def _unseed(apps, schema_editor):
    apps.get_model("billing", "PriceBook").objects.filter(name="2026-01").delete()


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_append_only")]
    operations = [migrations.RunPython(_seed, _unseed)]
