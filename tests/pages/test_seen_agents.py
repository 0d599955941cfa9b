"""When an agent was last seen: by its token, and by what its runs have reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from training import checking, tokens
from training.models import BackendToken, Run

MakeRun = Callable[..., Run]


def test_the_run_that_goes_now_counts_however_many_wait_behind_it(db: None, make_run: MakeRun) -> None:
    tokens.issue("lab")
    now = timezone.now()
    BackendToken.objects.update(issued_at=now - timedelta(days=2))
    make_run("r", status="running", backend="lab", agent="x", heard_at=now, created_at=now - timedelta(days=1))
    Run.objects.bulk_create(
        Run(id=f"q{n}", trainer="t", backend="local", created_at=now) for n in range(checking.NEWEST + 5)
    )
    assert checking.records(["lab"])["lab"].last_seen == now


def test_the_last_of_the_newest_runs_counts_and_one_that_no_agent_ran_does_not(db: None, make_run: MakeRun) -> None:
    tokens.issue("lab")
    now = timezone.now()
    BackendToken.objects.update(issued_at=now - timedelta(days=2))
    for n, (agent, hours) in enumerate([("x", 3), ("x", 2), ("", 1)]):
        make_run(f"e{n}", status="error", backend="lab", agent=agent, heard_at=now - timedelta(hours=hours))
    assert checking.records(["lab"])["lab"].last_seen == now - timedelta(hours=2)


def test_no_look_reads_all_runs(db: None) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL plans by the rows that are there")
    tokens.issue("lab")
    with CaptureQueriesContext(connection) as asked:
        checking.records(["lab"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked[-1]['sql']}")
        plan = [row[3] for row in cursor.fetchall()]
    assert not [step for step in plan if step.startswith("SCAN") and "INDEX" not in step]
