from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("training", "0007_project_of_the_lease"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="publishing_by",
            field=models.CharField(blank=True, max_length=32),
        ),
        migrations.AddField(
            model_name="run",
            name="publishing_until",
            field=models.DateTimeField(null=True),
        ),
    ]
