import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("topology", "0004_site_keeper_url")]
    operations = [
        migrations.AlterField(
            model_name="tenure",
            name="tenant",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="tenures",
                to="tenants.tenant",
            ),
        ),
    ]
