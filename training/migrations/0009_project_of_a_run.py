from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("training", "0008_publishing")]

    operations = [
        migrations.AddField("run", "project_file", models.TextField(blank=True, default="")),
    ]
