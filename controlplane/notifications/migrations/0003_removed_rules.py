from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("notifications", "0002_digests_and_places")]
    operations = [
        migrations.AddField(
            model_name="notificationrule",
            name="removed_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="deliveredevent",
            index=models.Index(
                condition=models.Q(("delivery", None)), fields=["rule", "id"], name="notification_uncollected"
            ),
        ),
    ]
