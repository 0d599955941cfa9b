"""One run's page without a browser: what each section says of every state, and that it never says more than is so."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from training import config, runs
from training.models import AuditEntry, Run, StepLine, SupervisorLease

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
HTMX = {"HX-Request": "true"}
MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def page_of(client: Client, query: str = "") -> str:
    answer = client.get(PAGE + query)
    assert answer.status_code == 200
    return answer.text


def section(page: str, ident: str) -> str:
    """The words of the section or element of that id, without marks."""
    found = re.search(rf'<(\w+)[^>]*\bid="{ident}".*?</\1>', page, re.DOTALL)
    assert found, f"no {ident}"
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split())


def live(client: Client, **query: Any) -> Any:
    return client.get(f"{PAGE}/live", query, headers=HTMX)


# The living part.


def test_a_run_that_waits_for_another_names_it(client: Client, make_run: MakeRun, supervised: SupervisorLease) -> None:
    make_run("20260301T110000-running", status="running")
    make_run("20260301T115900-before", created_at=timezone.now() - timedelta(days=300))
    make_run()
    said = section(page_of(client), "live")
    assert "It waits for run 20260301T110000-running to end: one run goes at a time." in said
    assert "1 run that waits was asked for before it" in said


def test_a_run_that_waits_for_a_supervisor_or_a_mended_file_says_so(
    client: Client, make_run: MakeRun, project_file: Path
) -> None:
    make_run()
    assert "No supervisor is running" in section(page_of(client), "live")
    now = timezone.now()
    SupervisorLease.objects.create(holder="here", taken_at=now, renewed_at=now)
    text = project_file.read_text(encoding="utf-8")
    project_file.write_text(text + "model_training: {bakend: x}\n", encoding="utf-8")
    page = page_of(client)
    assert "The project file has errors; no run starts until they are mended." in section(page, "live")
    assert "No supervisor is running" not in page


def test_a_run_that_was_asked_to_stop_says_by_whom_and_how_long_it_takes(
    client: Client, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    assert 'id="cancel"' in page_of(client) and "disabled" not in section_html(client, "live-actions")
    runs.ask_stop(run.pk, by="ana")
    page = page_of(client)
    assert "asked to stop, by ana" in section(page, "live")
    assert re.search(r"It ends in at most (20|19) seconds\.", section(page, "live"))
    assert re.search(r'id="cancel"[^>]* disabled', page)
    Run.objects.update(stop_asked_at=timezone.now() - timedelta(minutes=5))
    assert "it is being ended" in section(page_of(client), "live")


def section_html(client: Client, ident: str) -> str:
    found = re.search(rf'<div id="{ident}".*?</div>', page_of(client), re.DOTALL)
    assert found
    return found[0]


def test_a_page_asks_on_until_what_follows_the_end_was_done(
    client: Client, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    going = live(client, after=0, stage="going").text
    assert 'data-stage="going"' in going and "every 1s" in going
    runs.move(run, "success", "finished")
    ended = live(client, after=0, stage="going")
    assert (ended.headers["HX-Retarget"], ended.headers["HX-Reswap"]) == ("#live", "outerHTML")
    assert 'data-stage="ended"' in ended.text and "What follows the end is still going on" in ended.text
    same = live(client, after=0, stage="ended")
    assert "HX-Retarget" not in same.headers and "every 1s" in same.text
    runs.settled(run, timezone.now())
    settled = live(client, after=0, stage="ended")
    assert settled.headers["HX-Retarget"] == "#live"
    assert 'data-stage="settled"' in settled.text and "every" not in settled.text


def test_an_old_run_that_nobody_has_settled_is_not_asked_for_for_ever(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    assert 'data-stage="settled"' in page_of(client)


def test_the_end_brings_each_section_to_its_place_and_leaves_the_log_alone(
    client: Client, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    StepLine.objects.create(run=run, at=run.created_at, text="the last word")
    runs.move(run, "error", "No GPU has 4000 MB free")
    end = live(client, after=0, stage="going").text
    for place in ('id="results" hx-swap-oob="true"', 'id="rest" hx-swap-oob="true"', 'hx-swap-oob="beforeend:#log"'):
        assert place in end
    assert end.index("the last word") < end.index("No GPU has 4000 MB free", end.index("the last word"))
    assert 'id="log-section"' not in end and 'id="log"' not in end
    assert 'id="cancel"' not in end and 'id="again"' in end


def test_the_rest_of_a_long_log_comes_before_the_end(
    client: Client, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    StepLine.objects.bulk_create(StepLine(run=run, at=run.created_at, text=f"line {n}") for n in range(1100))
    runs.move(run, "success", "finished")
    after, stage, texts = 0, "going", []
    for _ in range(9):
        answer = live(client, after=after, stage=stage)
        texts += re.findall(r"<span>(line \d+)</span>", answer.text)
        if "HX-Retarget" in answer.headers:
            break
        assert "load delay" in answer.text, "the rest is asked for at once"
        asked = re.search(r"after=(\d+)&amp;stage=(\w+)", answer.text)
        assert asked
        after, stage = int(asked[1]), asked[2]
    assert texts == [f"line {n}" for n in range(1100)]
    assert 'data-stage="ended"' in answer.text


def test_a_run_that_was_removed_says_so_once_and_is_asked_for_no_more(client: Client, make_run: MakeRun) -> None:
    make_run(status="running").delete()
    answer = live(client, after=0, stage="going")
    assert answer.status_code == 286  # htmx's word for: swap it, and poll no more
    assert "no longer there" in answer.text and "hx-get" not in answer.text
    assert client.get(f"{PAGE}/live").status_code == 404


def test_the_living_part_takes_as_many_queries_for_many_rows_and_loads_nothing_large(
    client: Client, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    live(client, after=0, stage="going")
    with CaptureQueriesContext(connection) as few:
        live(client, after=0, stage="going")
    StepLine.objects.bulk_create(StepLine(run=run, at=run.created_at, text="x" * 3000) for n in range(700))
    for n in range(30):
        make_run(f"other{n:02}")
    with CaptureQueriesContext(connection) as many:
        live(client, after=0, stage="going")
    assert len(many) == len(few) <= 10
    assert not any('"scores"' in query["sql"] or '"mistakes"' in query["sql"] for query in many)


def test_run_again_leads_to_the_form_with_this_run(client: Client, make_run: MakeRun) -> None:
    make_run(status="error", error="No GPU")
    link = re.search(r'id="again"[^>]* href="([^"]+)"', page_of(client))
    assert link and link[1] == f"/admin/training?again={ID}#start"


# Errors.


def test_an_error_leads_to_what_helps(client: Client, make_run: MakeRun) -> None:
    make_run(status="error", error="No GPU has 4000 MB free", error_code="no_free_gpu", error_hint="Wait")
    page = page_of(client)
    assert 'href="/admin/training/troubleshooting#no_free_gpu"' in page
    assert "What no_free_gpu means, and what helps" in page


def test_an_error_of_somebody_elses_code_leads_nowhere(client: Client, make_run: MakeRun) -> None:
    make_run(status="error", error="it broke", error_code="of_my_own_agent")
    page = page_of(client)
    assert "troubleshooting#" not in page and "of_my_own_agent" in page


# Facts.


def test_parameters_that_nobody_chose_are_marked_as_defaults(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", params={"C": 2.5, "gone": ["x"]})
    rows = dict(re.findall(r'<th scope="row">[^<]*<code>(\w+)</code></th>(.*?)</tr>', page_of(client)))
    assert "2.5" in rows["C"] and "whoever asked" in rows["C"]
    assert "[&quot;x&quot;]" in rows["gone"] and "whoever asked" in rows["gone"]
    assert "both" in rows["analyzer"] and "default" in rows["analyzer"]


def test_a_parameter_that_was_sent_with_its_default_was_left_alone(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", params={"C": 4, "calibrate": 1, "analyzer": "both", "min_df": 3})
    rows = dict(re.findall(r'<th scope="row">[^<]*<code>(\w+)</code></th>(.*?)</tr>', page_of(client)))
    chosen = [name for name, row in rows.items() if "whoever asked" in row]
    assert chosen == ["min_df", "calibrate"] == list(rows)[:2]


def test_the_environment_is_shown_as_the_worker_told_it(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="success", host="gpu7", python="3.8.18", device="NVIDIA A100", packages={"torch": "2.9.0"})
    said = section(page_of(client), "facts")
    for words in ("gpu7", "3.8.18", "NVIDIA A100", "torch 2.9.0"):
        assert words in said
    Run.objects.filter(pk=run.pk).update(packages={})
    assert "did not say which packages" in section(page_of(client), "facts")
    Run.objects.filter(pk=run.pk).update(host="", python="", device="")
    assert "before a worker said anything" in section(page_of(client), "facts")


@pytest.mark.parametrize("odd", [{}, {"a": None}, {"a": {"b": {"c": 1}}, "d": [1], "e": "nan", "f": True}])
def test_odd_metrics_and_packages_break_nothing(client: Client, make_run: MakeRun, odd: Any) -> None:
    make_run(status="success", metrics=odd, packages=odd, splits=odd)
    assert "Facts" in page_of(client)


# Deeds.


def test_who_did_what_stands_on_the_page(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="cancelled")
    for action, actor, detail in (
        ("started", "ana", "api"),
        ("cancelled", "", "command"),
        ("retracted", "<b>bruno</b>", "manual"),
        ("published", "carla", "somebody/model"),
    ):
        AuditEntry.objects.create(run=run, at=run.created_at, action=action, actor=actor, detail=detail)
    page = page_of(client)
    said = section(page, "audit")
    assert "ana asked for the run through the API" in said
    assert "somebody without a name asked that it stop by a command" in said
    assert "&lt;b&gt;bruno&lt;/b&gt; took its prelabels back by hand" in said
    assert "carla published its model somebody/model" in said
    assert f'href="/admin/training/auditentry/?q={ID}"' in page
    assert client.get(f"/admin/training/auditentry/?q={ID}").status_code == 200


def test_a_run_that_the_site_asked_for_by_itself_says_so(client: Client, make_run: MakeRun) -> None:
    run = make_run()
    AuditEntry.objects.create(run=run, at=run.created_at, action="started", detail="auto")
    assert "the site itself asked for the run by automatic retraining" in section(page_of(client), "audit")


# Files.


def put(run_id: str, name: str, text: str = "x") -> Path:
    path = config.current().config.runs / run_id / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_artifacts_are_listed_with_their_sizes_and_their_sum(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    put(ID, "artifacts/model.skops", "x" * 2048)
    put(ID, "artifacts/labels.json", "x" * 1024)
    page = page_of(client)
    said = section(page, "artifacts")
    assert "2 files, 3.0\xa0KB together." in said.replace("&nbsp;", "\xa0") or "2 files, 3.0 KB together." in said
    link = re.search(r'href="([^"]+model\.skops)"', page)
    assert link and b"".join(client.get(link[1]).streaming_content) == b"x" * 2048  # type: ignore[attr-defined]


def test_of_many_files_the_first_are_shown_and_the_rest_is_counted(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    for n in range(205):
        put(ID, f"artifacts/part-{n:03}")
    page = page_of(client)
    said = section(page, "artifacts")
    assert "205 files" in said and "Only the first 200 are shown here." in said
    assert "part-199" in page and "part-200" not in page
    assert f'href="/admin/training/api/runs/{ID}/artifacts"' in page


def test_a_model_that_stayed_elsewhere_and_one_that_was_dropped_say_so(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="success", artifact_uri="file://ws7/home/me/jobs/1/artifacts")
    assert "The model files stayed on ws7 , in /home/me/jobs/1/artifacts" in section(page_of(client), "artifacts")
    Run.objects.filter(pk=run.pk).update(files_dropped_at=run.created_at, artifact_uri="")
    said = section(page_of(client), "artifacts")
    assert "were removed on" in said and "retain_runs" in said


def test_a_successful_run_that_left_no_files_says_so_and_one_that_goes_on_says_nothing(
    client: Client, make_run: MakeRun
) -> None:
    run = make_run(status="running")
    assert 'id="artifacts"' not in page_of(client)
    runs.move(run, "success", "finished")
    assert "This run has left no files." in section(page_of(client), "artifacts")


@pytest.mark.parametrize("status", ["error", "cancelled"])
def test_a_run_that_broke_off_has_no_section_that_says_nothing(client: Client, make_run: MakeRun, status: str) -> None:
    run = make_run(status=status)
    page = page_of(client)
    for ident in ("scores", "publish", "artifacts"):
        assert f'id="{ident}"' not in page and f'href="#{ident}"' not in page
    put(ID, "artifacts/model.bin")  # what it has left is shown
    assert "model.bin" in section(page_of(client), "artifacts")
    AuditEntry.objects.create(
        run=run, action="published", actor="me", at=run.created_at, detail="https://hub.example/a"
    )
    assert "https://hub.example/a" in section(page_of(client), "publish")
