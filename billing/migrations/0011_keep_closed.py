"""Corrections are append-only; closed periods, their sums and adjustments never change."""

from django.db import migrations

from billing.sql import migration_sql

_SQL = migration_sql(__file__)


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_usage_and_periods")]
    operations = [
        migrations.RunSQL(_SQL["fill_hours"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["fill_months"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["fill_periods"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["corrections_append_only"], _SQL["corrections_append_only_undo"]),
        migrations.RunSQL(_SQL["keep_period_function"], _SQL["keep_period_function_undo"]),
        migrations.RunSQL(_SQL["keep_period"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["keep_sums_function"], _SQL["keep_sums_function_undo"]),
        migrations.RunSQL(_SQL["keep_sums"], migrations.RunSQL.noop),
    ]
