"""The predictions of a run on its page: every filter, every page of it, texts beside them; and what write-back did."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from html import unescape
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from training import config, itemtexts, picking
from training.models import Prediction, Run
from training.picking import Filter

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
UGLY = "<script>alert(1)</script>\u202e\x07😀"

MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Any) -> Client:
    client.force_login(owner)
    return client


@pytest.fixture
def run(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> Run:
    """300 predictions in two schemas, of all outcomes, many of one confidence and some of none; pages of 7."""
    monkeypatch.setattr(picking, "PAGE", 7)
    rng = random.Random(6)
    run = make_run(status="success", schemas=["sentiment", "topics"], n_predictions=300)
    outcomes = ["", "published", "low_confidence", "rejected"]
    Prediction.objects.bulk_create(
        Prediction(
            run=run,
            schema=rng.choice(run.schemas),
            instance_id=f"item-{at:03}" if at % 3 else f"Item {at:03}",
            label=rng.choice(["good", "bad", ["good", "cheap"], 4, -0.5, [{"start": 0, "end": 2, "label": "good"}]]),
            confidence=rng.choice([None, 0.5, 0.5, 0.5, 1.0, rng.random()]),
            split=rng.choice(["val", "test", "unlabeled", "unlabeled", ""]),
            outcome=rng.choice(outcomes),
        )
        for at in range(300)
    )
    other = make_run("20260301T130000-bbbbbb", status="success", schemas=["sentiment"])
    Prediction.objects.bulk_create(
        Prediction(run=other, schema="sentiment", instance_id=f"item-{at:03}", label="good", confidence=0.5)
        for at in range(20)
    )
    return run


def all_pages(wanted: Filter, run: Run) -> list[Prediction]:
    found, after = list[Prediction](), 0
    for _ in range(400):
        page = picking.page(wanted, run, after)
        assert len(page.rows) <= picking.PAGE
        found += page.rows
        if page.next is None:
            return found
        assert page.next != after
        after = page.next
    raise AssertionError("the pages have no end")


def has_label(prediction: Prediction, label: str) -> bool:
    said = prediction.label if isinstance(prediction.label, list) else [prediction.label]
    return label in [str(one["label"]) if isinstance(one, dict) else str(one) for one in said]


def passes(row: Prediction, wanted: Filter) -> bool:
    sure = row.confidence
    return all(
        [
            wanted.schema in ("", row.schema),
            not wanted.label or has_label(row, wanted.label),
            not wanted.outcome or row.outcome == picking.stored(wanted.outcome),
            not wanted.split or row.split == picking.stored(wanted.split),
            wanted.min_confidence is None or (sure is not None and sure >= wanted.min_confidence),
            wanted.max_confidence is None or (sure is not None and sure <= wanted.max_confidence),
            row.instance_id.startswith(wanted.item),
        ]
    )


FILTERS = [
    Filter(),
    Filter(sort="least"),
    Filter(schema="topics"),
    Filter(label="good"),
    Filter(label="good", sort="least"),
    Filter(label="-0.5"),
    Filter(label="4", outcome="published"),
    Filter(label="nothing"),
    Filter(outcome="unjudged"),
    Filter(outcome="missing_item"),
    Filter(split="none"),
    Filter(split="test", outcome="rejected", sort="least"),
    Filter(min_confidence=0.5),
    Filter(max_confidence=0.5, sort="least"),
    Filter(min_confidence=0.5, max_confidence=0.5, label="bad"),
    Filter(item="item-0"),
    Filter(item="Item 0"),
    Filter(item="item-017"),
    Filter(item="item-1", label="good", schema="sentiment"),
    Filter(item="i", split="val", outcome="published", min_confidence=0.1),
    Filter(item="zzz"),
    Filter(item="%_"),
]


@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: wanted.query() or "everything")
def test_the_pages_together_are_what_passes_in_order_each_once(run: Run, wanted: Filter) -> None:
    found = all_pages(wanted, run)
    expected = [row for row in Prediction.objects.filter(run=run) if passes(row, wanted)]
    assert sorted(row.pk for row in found) == sorted(row.pk for row in expected)
    assert {row.pk for row in picking.queryset(wanted, run.pk)} == {row.pk for row in expected}
    if wanted.item:
        by_item = Prediction.objects.filter(pk__in=[row.pk for row in found]).order_by("schema", "instance_id")
        assert [row.pk for row in found] == [row.pk for row in by_item]
    else:
        down = wanted.sort == "most"
        sure = [row.confidence for row in found if row.confidence is not None]
        unsure = [row.pk for row in found[len(sure) :]]
        for page in (sure[at : at + picking.PAGE] for at in range(0, len(sure), picking.PAGE)):
            assert page == sorted(page, reverse=down)
        assert all((one - other if down else other - one) >= -0.01 for one, other in pairwise(sure))
        assert unsure == sorted(unsure, reverse=down)
        assert all(row.confidence is None for row in found[len(sure) :])


def test_what_has_become_of_a_prediction_meanwhile_is_seen(run: Run) -> None:
    published = all_pages(Filter(outcome="published"), run)
    Prediction.objects.filter(pk=published[0].pk).update(outcome="superseded")
    assert [row.pk for row in all_pages(Filter(outcome="superseded"), run)] == [published[0].pk]
    assert all_pages(Filter(outcome="published"), run) == published[1:]


def test_the_filter_is_in_the_address_and_in_those_of_the_files(client: Client, run: Run) -> None:
    page = client.get(f"{PAGE}?outcome=published&label=good&min_confidence=0,5").content.decode()
    assert '<option value="published" selected>' in page
    assert 'value="good"' in page and 'value="0,5"' in page
    query = "label=good&amp;outcome=published&amp;min_confidence=0.5"
    assert f'href="/admin/training/api/runs/{ID}/predictions.csv?{query}"' in page
    following = re.search(r'id="predictions-next" href="([^"#]+)#predictions" hx-get="([^"]+)"', page)
    assert following and f"?{query}&amp;past=" in following[1]
    fragment = client.get(unescape(following[2]), headers={"HX-Request": "true"})
    assert fragment.headers["HX-Push-Url"] == unescape(following[1])
    assert "<html" not in fragment.content.decode() and "predictions-first" in fragment.content.decode()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("schema=nothing", "schema"),
        ("outcome=liked", "outcome"),
        ("split=tset", "split"),
        ("min_confidence=much", "min_confidence"),
        ("min_confidence=-0.1", "min_confidence"),
        ("min_confidence=nan", "min_confidence"),
        ("max_confidence=1e999", "max_confidence"),
        ("min_confidence=0.9&max_confidence=0.1", "max_confidence"),
        ("label=%00", "label"),
        ("item=%00", "item"),
        ("item=" + "x" * 501, "item"),
        ("sort=up", "sort"),
        ("schema=%ED%A0%80", "schema"),
    ],
)
def test_a_wrong_filter_has_its_message_at_the_field(client: Client, run: Run, query: str, field: str) -> None:
    for address in (f"{PAGE}?{query}", f"{PAGE}/predictions?{query}"):
        answer = client.get(address)
        assert answer.status_code == 200
        page = answer.content.decode()
        assert f'id="error-filter-{field}"' in page and f'aria-describedby="error-filter-{field}"' in page
        assert "predictions tbody" not in page and 'class="predictions' not in page


@pytest.mark.parametrize("past", ["0", "-1", "x", "9" * 18, "9" * 30, "1.5", "%00"])
def test_an_odd_start_of_a_page_is_the_first_page(client: Client, run: Run, past: str) -> None:
    page = client.get(f"{PAGE}/predictions?past={past}").content.decode()
    assert page.count('scope="row" class="id">') == 7


def test_a_filter_that_nothing_passes_says_so(client: Client, run: Run) -> None:
    for query in ("label=rare", "item=nobody", "outcome=missing_item", "split=train"):
        assert "No prediction passes this filter." in client.get(f"{PAGE}/predictions?{query}").content.decode()


def bundle_with(run: Run, rows: Iterable[dict[str, Any]]) -> None:
    folder = config.current().config.runs / run.pk
    (folder / "bundle").mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "bundle" / "unlabeled.jsonl").write_text(lines, encoding="ascii")
    itemtexts.build(folder)


def test_texts_stand_beside_their_predictions_whatever_is_in_them(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="success", n_predictions=4)
    texts = {UGLY: "short <b>text</b>", "עברית": "טקסט", "long": "w " * 3000, "half": "x\ud83d"}
    bundle_with(run, ({"instance_id": name, "text": text} for name, text in texts.items()))
    for name in [*texts, "gone"]:
        Prediction.objects.create(run=run, schema="sentiment", instance_id=name, label=[UGLY], confidence=0.5)
    page = client.get(PAGE).content.decode()
    assert "<script>alert" not in page and "<b>text" not in page and "\u202e" not in page and "\x07" not in page
    assert '<bdi class="text">short &lt;b&gt;text&lt;/b&gt;</bdi>' in page
    assert '<bdi class="text">טקסט</bdi>' in page and "x\N{REPLACEMENT CHARACTER}" in page
    assert "The text goes on; this is its beginning." in page and "no text" in page


def test_a_broken_project_file_costs_the_texts_alone(client: Client, run: Run, project_file: Any) -> None:
    project_file.write_text("model_training: {bakend: x}\n", encoding="utf-8")
    page = client.get(PAGE).content.decode()
    assert page.count('scope="row" class="id">') == 7


def test_a_page_takes_as_many_queries_on_any_run(client: Client, run: Run) -> None:
    with CaptureQueriesContext(connection) as few:
        client.get(f"{PAGE}/predictions")
    Prediction.objects.filter(run=run).update(split="val", outcome="published")
    with CaptureQueriesContext(connection) as other:
        client.get(f"{PAGE}/predictions")
    assert len(few) == len(other) <= 6


def test_a_row_says_of_its_split_what_the_filter_does(client: Client, run: Run) -> None:
    Prediction.objects.filter(run=run).update(split="val")
    page = client.get(PAGE).text
    assert ">val: held out, to choose the model by</td>" in page


# Write-back.

REPORT = {
    "n_read": 300,
    "n_written": 12,
    "n_retracted": 0,
    "n_skipped_low_confidence": 200,
    "n_skipped_rejected": 88,
    "n_replaced": 5,
    "at": "2026-03-01T12:01:00+00:00",
    "notes": ["Potato shows no prelabels of 'x' <b>"],
}


def write_back_section(client: Client) -> str:
    page = client.get(PAGE).content.decode()
    start = page.index('id="writeback"')
    return page[start : page.index("</section>", start)]


def test_each_count_leads_to_its_predictions(client: Client, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(writeback=REPORT)
    section = write_back_section(client)
    for query, n in (("published", 12), ("low_confidence&amp;sort=least", 200), ("rejected", 88)):
        assert re.search(rf'<a href="{PAGE}\?outcome={query}#predictions"[^>]*>{n}</a>', section)
        assert client.get(unescape(f"{PAGE}?outcome={query}")).status_code == 200
    assert re.search(rf'<a href="{PAGE}#predictions"[^>]*>300</a>', section)
    assert '<td class="n">5</td>' in section  # older runs' prelabels, which are not among these
    assert "of &#x27;x&#x27; &lt;b&gt;" in section and "were taken back" not in section


def test_what_is_live_is_counted_now_and_a_retraction_says_how_many(client: Client, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(writeback=REPORT)
    n = Prediction.objects.filter(run=run, outcome="published").count()
    section = write_back_section(client)
    assert f"{n} prelabels of this run are live now" in section
    assert f'data-confirm="Take back the {n} prelabels of this run?' in section
    assert f"DELETE /admin/training/api/runs/{ID}/predictions" in section
    client.post(f"{PAGE}/retract")
    section = write_back_section(client)
    assert "No prelabel of this run is live now." in section
    assert re.search(r"Its prelabels were taken back on .+ by owner\.", section)
    assert 'id="retract"' not in section


def test_very_many_live_prelabels_are_not_counted_to_the_end(
    client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.pages.writtenback.MOST_COUNTED", 5)
    assert "More than 5 prelabels of this run are live now" in write_back_section(client)


def test_without_the_permission_there_is_no_button_but_a_word_of_it(run: Run, project_file: Any) -> None:
    reader = User.objects.create_user("reader", is_staff=True)
    reader.user_permissions.set(Permission.objects.filter(codename="view_run"))
    client = Client()
    client.force_login(reader)
    section = write_back_section(client)
    assert 'id="retract"' not in section and "needs the permission" in section


def test_the_file_of_prelabels_is_named_where_it_is(client: Client, run: Run) -> None:
    assert "prelabels.jsonl" not in write_back_section(client)
    folder = config.current().config.training
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prelabels.jsonl").write_text("", encoding="utf-8")
    assert "annotation_output/training/prelabels.jsonl" in write_back_section(client)
