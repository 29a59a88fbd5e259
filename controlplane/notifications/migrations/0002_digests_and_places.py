from django.db import migrations, models

#: What is under way keeps the form it would have had.
_KEEP = """
UPDATE notifications_delivery d SET digest = true FROM notifications_notificationrule r
WHERE r.id = d.rule_id AND NOT d.test AND (d.events > 1 OR d.state = 'COLLECTING' OR r.digest_minutes > 0)
"""
#: Messages of rules that were disabled before are not told later either.
_END = """
UPDATE notifications_delivery d SET state = 'DEAD', last_error = 'its rule was disabled', lease = NULL, leased_until = NULL
FROM notifications_notificationrule r
WHERE r.id = d.rule_id AND NOT r.enabled AND NOT d.test AND d.state IN ('COLLECTING', 'WAITING')
"""


class Migration(migrations.Migration):
    dependencies = [
        ("notifications", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="delivery",
            name="digest",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RunSQL(_KEEP, migrations.RunSQL.noop),
        migrations.RunSQL(_END, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("leased_until__isnull", False)),
                fields=["leased_until"],
                name="notification_under_way",
            ),
        ),
    ]
