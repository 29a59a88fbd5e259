from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("topology", "0003_sites_and_relocations")]

    operations = [
        migrations.AddField(
            model_name="site",
            name="keeper_url",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
    ]
