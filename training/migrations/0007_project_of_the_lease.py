from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0006_prelabels_of_a_run")]

    operations = [
        migrations.AddField("supervisorlease", "project_file", models.TextField(blank=True, default="")),
    ]
