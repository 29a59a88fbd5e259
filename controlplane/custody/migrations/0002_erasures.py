import controlplane.identity
import django.db.models.functions.datetime
from pathlib import Path

from django.db import migrations, models

from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent.parent / "sql" / "schema.sql")


class Migration(migrations.Migration):
    dependencies = [("custody", "0001_initial"), ("events", "0002_append_only_and_xid")]
    operations = [
        migrations.CreateModel(
            name="Erasure",
            fields=[
                ("id", models.UUIDField(default=controlplane.identity.new_id, editable=False, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("state", models.CharField(choices=[("REQUESTED", "Requested"), ("RUNNING", "Running"), ("DONE", "Done"), ("CANCELLED", "Cancelled")], default="REQUESTED", max_length=10)),
                ("step", models.IntegerField(default=0)),
                ("why", models.TextField(blank=True, default="")),
                ("plan", models.JSONField(default=dict)),
                ("done", models.JSONField(default=dict)),
                ("requested_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("due_at", models.DateTimeField()),
                ("began_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("certificate", models.JSONField(null=True)),
                ("link_sha256", models.BinaryField()),
                ("fetched_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [models.Index(condition=models.Q(("state__in", ["REQUESTED", "RUNNING"])), fields=["due_at"], name="erasure_due")],
                "constraints": [
                    models.UniqueConstraint(condition=models.Q(("state", "CANCELLED"), _negated=True), fields=("tenant_id",), name="erasure_once"),
                    models.CheckConstraint(condition=models.Q(("state__in", ["REQUESTED", "RUNNING", "DONE", "CANCELLED"])), name="erasure_state"),
                ],
            },
        ),
        migrations.RunSQL(_SQL["count_function"], _SQL["count_function_drop"]),
        migrations.RunSQL(_SQL["forget_function"], _SQL["forget_function_drop"]),
        migrations.RunSQL(_SQL["audit_function"], _SQL["audit_function_drop"]),
        migrations.RunSQL(_SQL["audit_trigger_drop"], _SQL["audit_trigger_undo"]),
        migrations.RunSQL(_SQL["audit_trigger"], _SQL["audit_trigger_drop"]),
    ]
