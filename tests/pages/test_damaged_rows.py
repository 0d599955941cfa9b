"""Rows as no part of the site writes them: whatever a column of JSON or text holds, each page is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from training import bulk
from training.models import AuditEntry, BackendToken, MetricPoint, Prediction, Run, RunItem, StepLine, Verdict

MakeRun = Callable[..., Run]
ID, OTHER = "20260301T120000-aaaaaa", "20260301T120000-bbbbbb"
PAGE = f"/admin/training/runs/{ID}"
COMPARED = f"/admin/training/compare?run={ID}&run={OTHER}"
PAGES = [
    *("/admin/training", "/admin/training/now", "/admin/training/runs-table", f"/admin/training?again={ID}", PAGE),
    *(f"{PAGE}/live", f"{PAGE}/live?stage=going&after=0", f"{PAGE}/predictions", f"{PAGE}/curves", f"{PAGE}/publish"),
    *(COMPARED, f"/admin/training/compare/curves?run={ID}&run={OTHER}"),
]
COLUMNS = ["schemas", "params", "splits", "packages", "metrics", "scores", "mistakes", "writeback", "result"]
HUGE = 10**400
ODD: list[Any] = [None, -1.5, HUGE, "\ud800<b>\u202e\x00", [], {}, [[1]], [{"a": 1}], {"": None}]


@pytest.fixture
def client(db: None, project_file: Path) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("owner"))
    return client


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    make_run(OTHER, status="success", scores={"sentiment": {"n": 3, "metrics": {"accuracy": 0.5}}})
    return make_run(ID, status="success", settled_at=timezone.now())


def write(run: Run, **columns: Any) -> None:
    """Past Django, which would refuse some of it; PostgreSQL itself refuses halves of characters, and NUL."""
    for name, value in columns.items():
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE training_run SET {name} = %s WHERE id = %s",
                [json.dumps(value if bulk.is_sqlite() else bulk.clean_json(value)), run.pk],
            )


def fallen(client: Client, pages: Sequence[str] = PAGES) -> list[str]:
    client.raise_request_exception = False
    return [address for address in pages if client.get(address).status_code >= 500]


@pytest.mark.parametrize("value", ODD, ids=[repr(value)[:20] for value in ODD])
def test_columns_of_json_may_hold_anything(client: Client, run: Run, value: Any) -> None:
    write(run, **dict.fromkeys(COLUMNS, value))
    assert fallen(client) == []
    write(run, **{column: {"sentiment": value} for column in COLUMNS})
    assert fallen(client, [PAGE, COMPARED]) == []


@pytest.mark.parametrize("value", ODD, ids=[repr(value)[:20] for value in ODD])
def test_every_part_of_the_scores_may_hold_anything(client: Client, run: Run, value: Any) -> None:
    whole = {
        "n": 3,
        "main": {"name": value, "value": value, "baseline": value},
        "metrics": {"accuracy": value, "x": value},
        "baseline": {"accuracy": value},
        "per_class": [{"label": value, "f1": value, "support": value}, value],
        "confusion": {"labels": [value, "b"], "matrix": [[value, 1], [1, value]], "largest": [[value, value, value]]},
        "calibration": {"error": value, "bins": [{"n": value, "low": value, "high": value}, value]},
        "baseline_predicts": value,
    }
    parts = {f"without {part}": {**whole, part: value} for part in (*whole, "n_missing", "kind")}
    mistake = {"schema": "sentiment", "item": value, "truth": value, "label": value, "confidence": value, "text": value}
    write(run, scores={"whole": whole, **parts, "": value}, metrics={"a": {"b": value}}, mistakes=[mistake, value])
    write(run, params={"C": value, "x": value}, packages={"a": value}, splits={"train": value}, schemas=["a", value])
    assert fallen(client) == []


def test_half_of_a_character_is_shown_as_a_question_mark(client: Client, run: Run) -> None:
    if not bulk.is_sqlite():
        pytest.skip("PostgreSQL keeps none")
    write(run, params={"C": "a\ud800b"}, schemas=["x\udfffy"])
    assert "a?b" in client.get(PAGE).text
    assert "x?y" in client.get("/admin/training").text


FILTERS = ("status", "source", "level", "outcome", "verdict", "action")


def test_the_admins_lists_take_any_filter(client: Client, run: Run) -> None:
    client.raise_request_exception = False
    for model in ("run", "stepline", "prediction", "verdict", "auditentry", "metricpoint", "runitem", "backendtoken"):
        for query in ("q=%00", *(f"{name}=%00" for name in FILTERS), "created_at__gte=x", "p=99&o=9.9"):
            answer = client.get(f"/admin/training/{model}/?{query}")
            assert answer.status_code < 500, (model, query)


HALF = "a\ud800b"
MODELS = ("run", "stepline", "prediction", "verdict", "auditentry", "metricpoint", "runitem", "backendtoken")
API = "/admin/training/api"


def damaged(run: Run) -> dict[str, Any]:
    """A row of each table with half of a character wherever JSON or text may have one; model name -> its id."""
    if not bulk.is_sqlite():
        pytest.skip("PostgreSQL keeps none")
    at = run.created_at
    write(run, **{column: {HALF: [HALF]} for column in COLUMNS})
    rows = {
        "run": run,
        "stepline": StepLine.objects.create(run=run, at=at, text="x"),
        "prediction": Prediction.objects.create(run=run, schema="x", instance_id="x", label="x", scores={}),
        "verdict": Verdict.objects.create(schema="x", instance_id="x", verdict="accept", reviewer="x", at=at),
        "auditentry": AuditEntry.objects.create(run=run, at=at, actor="x", action="started", detail="x"),
        "metricpoint": MetricPoint.objects.create(run=run, split="x", name="x", value=1),
        "runitem": RunItem.objects.create(run=run, instance_id="x", split="train"),
        "backendtoken": BackendToken.objects.create(backend="x", digest="x", issued_at=at, host="x"),
    }
    texts = {"stepline": "text", "verdict": "reviewer", "auditentry": "detail", "metricpoint": "name"}
    texts |= {"prediction": "schema", "runitem": "instance_id", "backendtoken": "host", "run": "error"}
    with connection.cursor() as cursor:
        for name, column in texts.items():  # as a hand may: CESU-8, which is no UTF-8
            cursor.execute(f"UPDATE training_{name} SET {column} = CAST(x'61EDA08062' AS TEXT)")
        half = json.dumps(HALF)
        cursor.execute("UPDATE training_prediction SET label = %s, scores = %s", [half, f"{{{half}: 1}}"])
        cursor.execute("UPDATE training_backendtoken SET gpus = %s", [f"[{half}]"])
    return {name: row.pk for name, row in rows.items()}


def test_half_of_a_character_in_any_row_is_no_failure_of_admin_pages_and_api(client: Client, run: Run) -> None:
    ids = damaged(run)
    assert set(ids) == set(MODELS)
    lists = [f"/admin/training/{name}/" for name in MODELS]
    rows = [f"/admin/training/{name}/{pk}/change/" for name, pk in ids.items()]
    of_run = [f"{API}/runs/{ID}{of}" for of in ("", "/steps", "/metrics", "/predictions", "/predictions.csv")]
    assert fallen(client, [*lists, *rows, *PAGES, f"{API}/runs", f"{API}/backends", *of_run]) == []
    assert "a?b" in client.get(f"/admin/training/run/{ID}/change/").text
