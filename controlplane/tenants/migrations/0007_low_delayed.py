"""LOW work of a tenant whose budget is spent may wait."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_compensation_deadline")]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="low_delayed_at",
            field=models.DateTimeField(null=True),
        ),
    ]
