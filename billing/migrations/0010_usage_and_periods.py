import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0003_first_price_book'),
    ]

    operations = [
        migrations.CreateModel(
            name='DriftCheck',
            fields=[
                ('pk', models.CompositePrimaryKey('cell', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('cell', models.CharField(max_length=63)),
                ('day', models.DateField()),
                ('tenants', models.IntegerField()),
                ('differences', models.IntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_drift_check',
            },
        ),
        migrations.CreateModel(
            name='UsageHour',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant_id', 'hour', 'metric', 'region_policy', 'cell', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('hour', models.DateTimeField()),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('cell', models.CharField(max_length=63)),
                ('quantity', models.BigIntegerField()),
                ('records', models.BigIntegerField()),
            ],
            options={
                'db_table': 'billing_usage_hour',
            },
        ),
        migrations.CreateModel(
            name='UsageMonth',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant_id', 'month', 'metric', 'region_policy', 'cell', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('month', models.DateField()),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('cell', models.CharField(max_length=63)),
                ('quantity', models.DecimalField(decimal_places=0, max_digits=30)),
                ('records', models.BigIntegerField()),
            ],
            options={
                'db_table': 'billing_usage_month',
            },
        ),
        migrations.AddField(
            model_name='dirtyday',
            name='hours',
            field=models.IntegerField(default=16777215),
        ),
        migrations.CreateModel(
            name='BillingPeriod',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('month', models.DateField()),
                ('state', models.CharField(choices=[('OPEN', 'Open'), ('CLOSING', 'Closing'), ('CLOSED', 'Closed')], default='OPEN', max_length=10)),
                ('opened_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('waits_for', models.JSONField(blank=True, default=list)),
                ('evidence', models.JSONField(blank=True, null=True)),
            ],
            options={
                'db_table': 'billing_period',
                'indexes': [models.Index(condition=models.Q(('state', 'CLOSED'), _negated=True), fields=['month', 'tenant_id'], name='period_not_closed')],
                'constraints': [models.UniqueConstraint(fields=('tenant_id', 'month'), name='period_once'), models.CheckConstraint(condition=models.Q(('month__day', 1)), name='period_is_a_month'), models.CheckConstraint(condition=models.Q(('state__in', ['OPEN', 'CLOSING', 'CLOSED'])), name='period_state_is_known'), models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', False), ('state', 'CLOSED')), models.Q(models.Q(('state', 'CLOSED'), _negated=True), ('closed_at__isnull', True)), _connector='OR'), name='period_closed_at_once')],
            },
        ),
        migrations.CreateModel(
            name='DriftFinding',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('day', models.DateField()),
                ('cell', models.CharField(max_length=63)),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('ledger', models.BigIntegerField()),
                ('rollup', models.BigIntegerField()),
                ('counted', models.BigIntegerField()),
                ('first_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('settled_by', models.CharField(blank=True, default='', max_length=200)),
            ],
            options={
                'db_table': 'billing_drift_finding',
                'constraints': [models.UniqueConstraint(condition=models.Q(('settled_at', None)), fields=('tenant_id', 'day', 'cell', 'metric', 'region_policy'), name='drift_open_once')],
            },
        ),
        migrations.CreateModel(
            name='MeterCorrection',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('minute', models.DateTimeField()),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('cell', models.CharField(max_length=63)),
                ('store', models.SmallIntegerField()),
                ('epoch', models.BigIntegerField()),
                ('host', models.CharField(max_length=200)),
                ('quantity', models.BigIntegerField()),
                ('reason', models.TextField()),
                ('actor', models.CharField(max_length=200)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_meter_correction',
                'indexes': [models.Index(fields=['tenant_id', 'minute'], name='correction_of_minute')],
            },
        ),
        migrations.CreateModel(
            name='MeterWatermark',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('cell', models.CharField(max_length=63)),
                ('store', models.SmallIntegerField()),
                ('epoch', models.BigIntegerField()),
                ('sealed_until', models.DateTimeField(blank=True, null=True)),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_meter_watermark',
                'constraints': [models.UniqueConstraint(fields=('cell', 'store', 'epoch'), name='watermark_once')],
            },
        ),
        migrations.CreateModel(
            name='UsageAdjustment',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant_id', 'into_month', 'day', 'metric', 'region_policy', 'cell', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('into_month', models.DateField()),
                ('day', models.DateField()),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('cell', models.CharField(max_length=63)),
                ('quantity', models.BigIntegerField()),
                ('computed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_usage_adjustment',
                'indexes': [models.Index(fields=['tenant_id', 'day'], name='adjustment_of_day')],
                'constraints': [models.CheckConstraint(condition=models.Q(('into_month__day', 1)), name='adjustment_bills_a_month')],
            },
        ),
    ]
