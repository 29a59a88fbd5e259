"""What the ORM cannot say: the audit trigger, the feed's xid column, the horizon row."""

from pathlib import Path

from django.db import migrations

from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent.parent / "sql" / "schema.sql")


class Migration(migrations.Migration):
    dependencies = [("events", "0001_initial")]
    operations = [
        migrations.RunSQL(_SQL["refuse_changes"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["audit_append_only"], _SQL["audit_append_only_undo"]),
        migrations.RunSQL(_SQL["change_xid"], _SQL["change_xid_undo"]),
        migrations.RunSQL(_SQL["change_xid_index"], migrations.RunSQL.noop),
        migrations.RunSQL(_SQL["horizon_row"], migrations.RunSQL.noop),
    ]
