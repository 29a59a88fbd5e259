"""How far routers have shipped what they counted."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0040_months_of_nothing")]
    operations = [
        migrations.CreateModel(
            name="RouterMark",
            fields=[
                ("host", models.CharField(max_length=200, primary_key=True, serialize=False)),
                ("sealed_until", models.DateTimeField()),
                ("heard_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"db_table": "billing_router_mark"},
        ),
    ]
