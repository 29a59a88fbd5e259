import controlplane.identity
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('operators', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='OperatorRead',
            fields=[
                ('id', models.UUIDField(default=controlplane.identity.new_id, editable=False, primary_key=True, serialize=False)),
                ('operator', models.CharField(max_length=200)),
                ('tenant_id', models.UUIDField()),
                ('hour', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('operator', 'tenant_id', 'hour'), name='operator_read_once_an_hour')],
            },
        ),
    ]
