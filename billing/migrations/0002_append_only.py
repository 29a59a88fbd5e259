"""The ledger refuses updates and deletes."""

from django.db import migrations

from billing.sql import migration_sql

_SQL = migration_sql(__file__)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [
        migrations.RunSQL(_SQL["refuse_changes"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["append_only"], _SQL["append_only_undo"]),
    ]
