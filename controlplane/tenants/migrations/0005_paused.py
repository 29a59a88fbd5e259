"""A tenant's own people may pause all of its work."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_invitations_and_preferences")]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="paused_at",
            field=models.DateTimeField(null=True),
        ),
    ]
