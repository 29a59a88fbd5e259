"""Months that come to nothing are noted; databases that have run 0021 get the trigger as it is now."""

import django.db.models.functions.datetime
from django.db import migrations, models

from billing.sql import migration_sql

_SQL = migration_sql(__file__)


class Migration(migrations.Migration):
    dependencies = [("billing", "0030_exports")]
    operations = [
        migrations.CreateModel(
            name="NothingDue",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("month", models.DateField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"db_table": "billing_nothing_due"},
        ),
        migrations.AddConstraint(
            model_name="nothingdue",
            constraint=models.UniqueConstraint(fields=("tenant_id", "month"), name="nothing_due_once"),
        ),
        migrations.RunSQL(_SQL["book_unchanged"], migrations.RunSQL.noop),
    ]
