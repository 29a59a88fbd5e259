"""The sequence that numbers workspace schemas."""

from pathlib import Path

from django.db import migrations

from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent.parent.parent / "workspace" / "sql" / "pool.sql")


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_initial")]
    operations = [migrations.RunSQL(_SQL["number_sequence"], "DROP SEQUENCE workspace_schema_number")]
