"""Price books, contracts, invoices, budgets, and what Stripe knows."""

import billing.charging.machine
import billing.ids
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0011_keep_closed'),
    ]

    operations = [
        migrations.CreateModel(
            name='BillingAccount',
            fields=[
                ('tenant_id', models.UUIDField(primary_key=True, serialize=False)),
                ('currency', models.CharField(max_length=3)),
                ('legal_name', models.CharField(blank=True, default='', max_length=200)),
                ('address', models.TextField(blank=True, default='')),
                ('tax_id', models.CharField(blank=True, default='', max_length=40)),
                ('emails', django.contrib.postgres.fields.ArrayField(base_field=models.EmailField(max_length=254), default=list, size=None)),
                ('taxes', models.JSONField(default=list)),
                ('version', models.BigIntegerField(default=1)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_account',
            },
        ),
        migrations.CreateModel(
            name='CreditNote',
            fields=[
                ('id', models.UUIDField(default=billing.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('issuer', models.CharField(max_length=60)),
                ('sequence', models.BigIntegerField()),
                ('number', models.CharField(max_length=40)),
                ('currency', models.CharField(max_length=3)),
                ('lines', models.JSONField()),
                ('net', models.DecimalField(decimal_places=3, max_digits=24)),
                ('taxes', models.DecimalField(decimal_places=3, max_digits=24)),
                ('total', models.DecimalField(decimal_places=3, max_digits=24)),
                ('reason', models.TextField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_credit_note',
            },
        ),
        migrations.CreateModel(
            name='Invoice',
            fields=[
                ('id', models.UUIDField(default=billing.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('period_start', models.DateField()),
                ('period_end', models.DateField()),
                ('state', models.CharField(choices=[('DRAFT', 'DRAFT'), ('FINAL', 'FINAL'), ('PAID', 'PAID'), ('VOID', 'VOID'), ('UNCOLLECTIBLE', 'UNCOLLECTIBLE')], default=billing.charging.machine.InvoiceState['DRAFT'], max_length=14)),
                ('currency', models.CharField(max_length=3)),
                ('issuer', models.CharField(max_length=60)),
                ('sequence', models.BigIntegerField(blank=True, null=True)),
                ('number', models.CharField(blank=True, default='', max_length=40)),
                ('net', models.DecimalField(decimal_places=3, default=0, max_digits=24)),
                ('taxes', models.DecimalField(decimal_places=3, default=0, max_digits=24)),
                ('total', models.DecimalField(decimal_places=3, default=0, max_digits=24)),
                ('credited', models.DecimalField(decimal_places=3, default=0, max_digits=24)),
                ('recipient', models.JSONField(default=dict)),
                ('basis', models.JSONField(default=dict)),
                ('digest', models.CharField(blank=True, default='', max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finalized_at', models.DateTimeField(blank=True, null=True)),
                ('due_on', models.DateField(blank=True, null=True)),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'billing_invoice',
            },
        ),
        migrations.CreateModel(
            name='InvoiceLine',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('n', models.IntegerField()),
                ('kind', models.CharField(max_length=12)),
                ('metric', models.CharField(max_length=80)),
                ('region_policy', models.CharField(blank=True, max_length=20)),
                ('start', models.DateField()),
                ('end', models.DateField()),
                ('tier', models.IntegerField(blank=True, null=True)),
                ('quantity', models.DecimalField(decimal_places=0, max_digits=30)),
                ('priced', models.DecimalField(decimal_places=0, max_digits=30, null=True)),
                ('unit_amount', models.TextField(blank=True, default='')),
                ('per', models.BigIntegerField(blank=True, null=True)),
                ('book', models.CharField(blank=True, default='', max_length=80)),
                ('exact', models.TextField()),
                ('amount', models.DecimalField(decimal_places=3, max_digits=24)),
            ],
            options={
                'db_table': 'billing_invoice_line',
                'ordering': ['n'],
            },
        ),
        migrations.CreateModel(
            name='LowDelay',
            fields=[
                ('tenant_id', models.UUIDField(primary_key=True, serialize=False)),
                ('month', models.DateField()),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_low_delay',
            },
        ),
        migrations.CreateModel(
            name='NumberSeries',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('issuer', models.CharField(max_length=60)),
                ('kind', models.CharField(max_length=12)),
                ('last', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'billing_number_series',
            },
        ),
        migrations.CreateModel(
            name='SentMail',
            fields=[
                ('key', models.CharField(max_length=160, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('sent_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_sent_mail',
            },
        ),
        migrations.CreateModel(
            name='StripeCursor',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('month', models.DateField()),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('sent', models.DecimalField(decimal_places=0, default=0, max_digits=30)),
                ('steps', models.IntegerField(default=0)),
                ('pending', models.DecimalField(decimal_places=0, max_digits=30, null=True)),
                ('pending_at', models.DateTimeField(null=True)),
                ('pending_since', models.DateTimeField(null=True)),
                ('error', models.TextField(blank=True, default='')),
            ],
            options={
                'db_table': 'billing_stripe_cursor',
            },
        ),
        migrations.CreateModel(
            name='StripeCustomer',
            fields=[
                ('tenant_id', models.UUIDField(primary_key=True, serialize=False)),
                ('customer', models.CharField(max_length=80, unique=True)),
                ('version', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_stripe_customer',
            },
        ),
        migrations.CreateModel(
            name='StripeDifference',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField(blank=True, null=True)),
                ('kind', models.CharField(max_length=20)),
                ('subject', models.CharField(max_length=160)),
                ('ours', models.CharField(max_length=60)),
                ('theirs', models.CharField(max_length=60)),
                ('found_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'billing_stripe_difference',
            },
        ),
        migrations.CreateModel(
            name='StripeEvent',
            fields=[
                ('event_id', models.CharField(max_length=80, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=120)),
                ('created', models.DateTimeField()),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('outcome', models.TextField(blank=True, default='')),
            ],
            options={
                'db_table': 'billing_stripe_event',
            },
        ),
        migrations.CreateModel(
            name='StripeMeter',
            fields=[
                ('event_name', models.CharField(max_length=80, primary_key=True, serialize=False)),
                ('metric', models.CharField(max_length=32)),
                ('region_policy', models.CharField(max_length=20)),
                ('meter', models.CharField(max_length=80, unique=True)),
            ],
            options={
                'db_table': 'billing_stripe_meter',
            },
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('tenant_id', models.UUIDField(primary_key=True, serialize=False)),
                ('amount', models.DecimalField(decimal_places=3, max_digits=20)),
                ('capped', models.BooleanField(default=False)),
                ('grace_hours', models.IntegerField(default=24)),
                ('version', models.BigIntegerField(default=1)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_budget',
                'constraints': [models.CheckConstraint(condition=models.Q(('amount__gt', 0), ('grace_hours__gte', 0), ('grace_hours__lte', 720)), name='budget_is_sane')],
            },
        ),
        migrations.CreateModel(
            name='BudgetAlert',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('month', models.DateField()),
                ('threshold', models.IntegerField()),
                ('budget', models.DecimalField(decimal_places=3, max_digits=20)),
                ('spent', models.DecimalField(decimal_places=3, max_digits=24)),
                ('currency', models.CharField(max_length=3)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_budget_alert',
                'constraints': [models.UniqueConstraint(fields=('tenant_id', 'month', 'threshold'), name='budget_alert_once'), models.CheckConstraint(condition=models.Q(('threshold__in', (50, 80, 100))), name='budget_alert_known')],
            },
        ),
        migrations.CreateModel(
            name='ChargeBook',
            fields=[
                ('id', models.UUIDField(default=billing.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80, unique=True)),
                ('currency', models.CharField(max_length=3)),
                ('effective_from', models.DateField()),
                ('prices', models.JSONField()),
                ('minimum', models.DecimalField(decimal_places=3, default=0, max_digits=20)),
                ('note', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_by', models.CharField(max_length=200)),
            ],
            options={
                'db_table': 'billing_charge_book',
                'constraints': [models.UniqueConstraint(fields=('currency', 'effective_from'), name='charge_book_of_day'), models.CheckConstraint(condition=models.Q(('minimum__gte', 0)), name='charge_book_minimum')],
            },
        ),
        migrations.CreateModel(
            name='Contract',
            fields=[
                ('id', models.UUIDField(default=billing.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('effective_from', models.DateField()),
                ('effective_until', models.DateField(blank=True, null=True)),
                ('prices', models.JSONField(default=list)),
                ('minimum', models.DecimalField(blank=True, decimal_places=3, max_digits=20, null=True)),
                ('note', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_by', models.CharField(max_length=200)),
            ],
            options={
                'db_table': 'billing_contract',
                'indexes': [models.Index(fields=['tenant_id', 'id'], name='contract_of_tenant')],
                'constraints': [models.CheckConstraint(condition=models.Q(('effective_until', None), ('effective_until__gt', models.F('effective_from')), _connector='OR'), name='contract_ends_behind_its_start'), models.UniqueConstraint(fields=('tenant_id', 'effective_from'), name='contract_of_day')],
            },
        ),
        migrations.CreateModel(
            name='StripeInvoice',
            fields=[
                ('invoice', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='stripe', serialize=False, to='billing.invoice')),
                ('stripe_id', models.CharField(max_length=80, unique=True)),
                ('state', models.CharField(max_length=20)),
                ('payment_url', models.TextField(blank=True, default='')),
                ('credited', models.DecimalField(decimal_places=3, default=0, max_digits=24)),
                ('error', models.TextField(blank=True, default='')),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'billing_stripe_invoice',
            },
        ),
        migrations.AddIndex(
            model_name='invoice',
            index=models.Index(fields=['tenant_id', 'id'], name='invoice_of_tenant'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.UniqueConstraint(condition=models.Q(('state', billing.charging.machine.InvoiceState['VOID']), _negated=True), fields=('tenant_id', 'period_start'), name='invoice_once_per_period'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.UniqueConstraint(fields=('issuer', 'sequence'), name='invoice_number_once'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finalized_at', None), ('sequence', None), ('state', billing.charging.machine.InvoiceState['DRAFT'])), models.Q(('finalized_at__isnull', False), ('sequence__gte', 1), ('state__in', [billing.charging.machine.InvoiceState['FINAL'], billing.charging.machine.InvoiceState['PAID'], billing.charging.machine.InvoiceState['UNCOLLECTIBLE'], billing.charging.machine.InvoiceState['VOID']])), _connector='OR'), name='invoice_numbered_when_final'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('credited__gte', 0), ('credited__lte', models.F('total'))), ('credited', 0), _connector='OR'), name='invoice_credited_at_most'),
        ),
        migrations.AddField(
            model_name='creditnote',
            name='invoice',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='credit_notes', to='billing.invoice'),
        ),
        migrations.AddField(
            model_name='invoiceline',
            name='invoice',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='lines', to='billing.invoice'),
        ),
        migrations.AddConstraint(
            model_name='numberseries',
            constraint=models.UniqueConstraint(fields=('issuer', 'kind'), name='number_series_once'),
        ),
        migrations.AddConstraint(
            model_name='stripecursor',
            constraint=models.UniqueConstraint(fields=('tenant_id', 'month', 'metric', 'region_policy'), name='stripe_cursor_once'),
        ),
        migrations.AddConstraint(
            model_name='stripecursor',
            constraint=models.CheckConstraint(condition=models.Q(('pending', None), ('pending__gt', models.F('sent')), _connector='OR'), name='stripe_cursor_goes_up'),
        ),
        migrations.AddConstraint(
            model_name='stripedifference',
            constraint=models.UniqueConstraint(condition=models.Q(('settled_at', None)), fields=('kind', 'subject'), name='stripe_difference_once'),
        ),
        migrations.AddConstraint(
            model_name='creditnote',
            constraint=models.UniqueConstraint(fields=('issuer', 'sequence'), name='credit_note_number_once'),
        ),
        migrations.AddConstraint(
            model_name='creditnote',
            constraint=models.CheckConstraint(condition=models.Q(('total__gt', 0)), name='credit_note_gives_back'),
        ),
        migrations.AddConstraint(
            model_name='invoiceline',
            constraint=models.UniqueConstraint(fields=('invoice', 'n'), name='invoice_line_once'),
        ),
    ]
