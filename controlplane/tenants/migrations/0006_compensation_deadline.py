"""How long a tenant's workflows may undo before they need a person."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_paused")]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="compensation_deadline_seconds",
            field=models.IntegerField(default=86400),
        ),
    ]
