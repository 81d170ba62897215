"""The table of the outbox. Tested by test_outbox.py."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Unsent",
            fields=[
                ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("app", models.CharField(max_length=255)),
                ("call", models.TextField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={"verbose_name_plural": "unsent"},
        )
    ]
