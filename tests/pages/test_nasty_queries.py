"""Addresses with nonsense in them: every page and fragment answers, and none falls over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from training import urls
from training.models import MetricPoint, Run, StepLine

ID = "20260301T120000-aaaaaa"
MakeRun = Callable[..., Run]

# Every parameter that a page or a fragment reads.
NAMES = [
    *("again", "mark", "table", "live", "q", "status", "trainer", "backend", "schema", "by", "sort", "page", "run"),
    *("schemas", "seed", "token", "param-C", "param-min_instances", "param-nonsense", "after", "stage", "before"),
    *("level", "around", "label", "outcome", "split", "min_confidence", "max_confidence", "item", "past"),
]
VALUES = [
    *("", "0", "-1", "1e400", "NaN", "9" * 5_000, "9223372036854775808", "٣", "1.5", "true", "[]", '{"a": [1]}'),
    *("%00", "a%00b", "%ED%A0%80", "%FF%FE", "%E2%80%AE", "%F0%9F%98%80", "%0D%0AX-Evil%3A%201", "<script>", "'\"`"),
    *("../../etc/passwd", "//elsewhere.example", "%25s", "%25(name)s", "{{ 7*7 }}", "x" * 20_000, ID, "error", "-took"),
]
POSTED = [f"/admin/training/{name}" for name in ("start", "check", f"runs/{ID}/cancel", f"runs/{ID}/publish")]
RUN_IDS = ["x", "%00", "a%00b", "%ED%A0%80", "%F0%9F%98%80", "..", "%0D%0A", "x" * 5_000, ID + "%20", "'\"<b>", "%2F"]


@pytest.fixture
def client(db: None, project_file: Path) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("owner"))
    return client


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    run = make_run(status="running", scores={"sentiment": {"n": 1, "per_class": [{"label": "good"}]}})
    StepLine.objects.create(run=run, at=timezone.now(), text="fitting")
    MetricPoint.objects.create(run=run, name="loss", split="train", step=1, value=0.5)
    return run


def addresses(run_id: str, name: str = "stderr.log", line: str = "1") -> Iterator[str]:
    """Every address of training/urls.py."""
    for pattern in urls.urlpatterns:
        route = str(pattern.pattern).strip("^").removesuffix("/?$")
        route = route.replace("<str:run_id>", run_id).replace("<str:name>", name).replace("<int:line_id>", line)
        assert "<" not in route.replace(run_id, "").replace(name, ""), "fill the new part of the address in here"
        yield f"/admin/{route}"


def queries() -> Iterator[str]:
    """Three values at a time, each in a third of the parameters; then repeated ones, and what is no query at all."""
    for at in range(0, len(VALUES), 3):
        said = [value if value.startswith(("%", "a%")) else quote(value) for value in VALUES[at : at + 3]]
        yield "&".join(f"{name}={said[(number + at) % len(said)]}" for number, name in enumerate(NAMES))
    yield "&".join(f"{name}={value}" for name in NAMES for value in ("1", "x", ""))
    yield "&&&===&q&%&%zz=%zz&q[]=1&q[0]=2&run[]=1" + "&a=1" * 900


def test_no_query_makes_a_page_fall_over(client: Client, run: Run) -> None:
    client.raise_request_exception = False
    htmx = {"HX-Request": "true"}
    fallen = [
        f"{address}?{query[:100]}"
        for address in addresses(ID)
        if client.get(address).status_code != 405
        for number, query in enumerate(queries())
        if client.get(f"{address}?{query}", headers=htmx if number % 2 else {}).status_code >= 500
    ]
    assert not fallen


def test_no_run_id_makes_a_page_fall_over(client: Client, run: Run) -> None:
    client.raise_request_exception = False
    at = [address for run_id in RUN_IDS for address in addresses(run_id) if run_id in address]
    at += list(addresses(ID, name="%00", line="9" * 5_000)) + list(addresses(ID, name="..%2Fbundle.zip", line="0"))
    answers = {address: client.get(address).status_code for address in at}
    assert not [address[:100] for address, status in answers.items() if status >= 500]


ODD = ["\0", "\ud800", "9" * 5_000, '[{"a": NaN}]', "x" * 20_000, "//elsewhere.example", "\r\nX-Evil: 1"]
FORM = {
    **{"trainer": "sklearn-text", "schemas": "sentiment", "backend": "local", "seed": "0", "token": "t", "again": ""},
    **{"param-C": "1", "param-ngram_max": "2", "param-class_weight": "balanced", "param-nonsense": ""},
    **{"back": "", "next": "", "repo_id": "a/b", "hub_token": "hf_x", "card": "", "public": "", "may_replace": ""},
}


def test_no_posted_form_makes_a_page_fall_over(client: Client, run: Run) -> None:
    """Nonsense in every field at once, and in one field of a start form that is right without it."""
    forms = [(address, dict.fromkeys(FORM, value)) for value in ODD for address in POSTED]
    forms += [(POSTED[0], {**FORM, name: ODD[at % len(ODD)]}) for at, name in enumerate(FORM)]
    forms += [(POSTED[0], {**FORM, "seed": "0" * 5_000})]
    for address, form in forms:
        body = "&".join(f"{name}={quote(said.encode('utf-8', 'surrogatepass'))}" for name, said in form.items())
        answer = client.post(address, body, content_type="application/x-www-form-urlencoded")
        assert answer.status_code < 500, (address, form)
        assert "elsewhere.example" not in answer.headers.get("Location", "")
