"""The registry's tables and columns have words for people, and the migrations know nothing of them."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db.models import Field
from django.test import Client

from training.fieldwords import TABLES, WORDS
from training.models import Run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MODELS = list(apps.get_app_config("training").get_models())


def test_every_column_has_a_word_and_no_word_is_of_a_column_that_is_gone() -> None:
    columns = {field.name for model in MODELS for field in model._meta.get_fields() if isinstance(field, Field)}
    assert set(WORDS) == columns
    assert set(TABLES) <= {model.__name__ for model in MODELS}


@pytest.mark.django_db
def test_words_change_no_migration() -> None:
    said = StringIO()
    call_command("makemigrations", "training", check=True, dry_run=True, stdout=said)
    assert "No changes detected" in said.getvalue()


def test_the_admin_shows_them(admin_client: Client) -> None:
    Run.objects.create(id="20260301T120000-aaaaaa", trainer="sklearn-text", backend="local", created_at=NOON)
    assert "Who asked" in admin_client.get("/admin/training/run/").text
    assert "Digest of the data" in admin_client.get("/admin/training/run/20260301T120000-aaaaaa/change/").text
