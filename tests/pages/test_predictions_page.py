"""The predictions of a run on its page: every filter, every page of it, texts beside them; and what write-back did."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from training import confidenceorder, config, itemtexts, picking
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
    """300 predictions in two schemas, of all outcomes, many of one confidence and some of none; pages of 7, which are
    looked for in windows of 40."""
    monkeypatch.setattr(picking, "PAGE", 7)
    monkeypatch.setattr(picking, "WINDOW", 40)
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
    order, found, after = confidenceorder.of(run, None), list[Prediction](), 0
    assert order is not None
    for _ in range(400):
        page = picking.page(wanted, run, order, after)
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
        assert [row.instance_id for row in found] == sorted(row.instance_id for row in found)
    else:
        sure = [row.confidence for row in found if row.confidence is not None]
        assert sure == sorted(sure, reverse=wanted.sort == "most")
        assert all(row.confidence is None for row in found[len(sure) :])


@pytest.mark.parametrize("wanted", FILTERS[:17], ids=lambda wanted: wanted.query() or "everything")
def test_the_file_gives_the_same_order(
    run: Run, wanted: Filter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = all_pages(wanted, run)
    monkeypatch.setattr(confidenceorder, "MOST_WITHOUT_FILE", 10)
    assert confidenceorder.of(run, tmp_path) is None
    confidenceorder.build(run, tmp_path)
    order = confidenceorder.of(run, tmp_path)
    assert order is not None and len(order.ids) == 300
    monkeypatch.setattr(confidenceorder, "of", lambda *_: order)
    assert [row.pk for row in all_pages(wanted, run)] == [row.pk for row in by_hand]


def test_what_has_become_of_a_prediction_since_the_file_was_made_is_seen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confidenceorder, "MOST_WITHOUT_FILE", 10)
    monkeypatch.setattr(picking, "WINDOW", 8)  # so that no outcome is of few
    confidenceorder.build(run, tmp_path)
    order = confidenceorder.of(run, tmp_path)
    monkeypatch.setattr(confidenceorder, "of", lambda *_: order)
    published = Prediction.objects.filter(run=run, outcome="published")
    for at, outcome in enumerate(("superseded", "retracted", "rejected", "train_split")):
        Prediction.objects.filter(pk__in=published.values_list("pk", flat=True)[:12]).update(outcome=outcome)
        Prediction.objects.filter(run=run, outcome="", pk__endswith=at).update(outcome=outcome)
    Prediction.objects.filter(run=run, outcome="").update(outcome="missing_item")
    for outcome in (
        "published",
        "superseded",
        "retracted",
        "rejected",
        "train_split",
        "missing_item",
        "low_confidence",
    ):
        expected = Prediction.objects.filter(run=run, outcome=outcome).values_list("pk", flat=True)
        assert {row.pk for row in all_pages(Filter(outcome=outcome), run)} == set(expected), outcome


def test_a_file_of_another_number_of_predictions_is_not_believed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confidenceorder, "MOST_WITHOUT_FILE", 10)
    confidenceorder.build(run, tmp_path)
    assert confidenceorder.of(Run(pk=run.pk, n_predictions=299), tmp_path) is None
    file = tmp_path / confidenceorder.FILE
    for damaged in (file.read_bytes()[:-8], b"", b"x" * 9000, b"{}".ljust(9000)):
        file.write_bytes(damaged)
        assert confidenceorder.of(run, tmp_path) is None
    confidenceorder.build(run, tmp_path)
    assert confidenceorder.of(run, tmp_path) is not None


def test_a_large_run_is_put_in_order_once_it_is_over(client: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidenceorder, "MOST_WITHOUT_FILE", 10)
    folder = config.current().config.runs / run.pk
    Run.objects.filter(pk=run.pk).update(status="running", finished_at=None)
    assert "not put in order yet" in client.get(f"{PAGE}/predictions?outcome=rejected").content.decode()
    Run.objects.filter(pk=run.pk).update(status="success", finished_at=run.created_at)
    folder.mkdir(parents=True)
    assert client.get(f"{PAGE}/predictions").content.decode().count('<th scope="row" class="id">') == 7
    assert (folder / confidenceorder.FILE).is_file()


def test_the_outcomes_are_those_of_this_run(run: Run) -> None:
    assert picking.outcomes_of(run) == ["", "low_confidence", "published", "rejected"]
    assert picking.outcomes_of(Run(pk="nothing")) == []


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
        assert "predictions tbody" not in page and 'class="predictions"' not in page


@pytest.mark.parametrize("past", ["0", "-1", "x", "9" * 18, "9" * 30, "1.5", "%00"])
def test_an_odd_start_of_a_page_is_the_first_page(client: Client, run: Run, past: str) -> None:
    page = client.get(f"{PAGE}/predictions?past={past}").content.decode()
    assert page.count('<th scope="row" class="id">') == 7


def test_where_a_window_has_too_little_the_page_says_so_and_goes_on(client: Client, run: Run) -> None:
    Prediction.objects.filter(run=run).update(label="common")
    assert "No prediction passes" in client.get(f"{PAGE}/predictions?label=rare").content.decode()
    Prediction.objects.filter(run=run).update(label=["common"])
    page = client.get(f"{PAGE}/predictions?label=rare").content.decode()
    assert "Among the next 40 predictions 0 pass this filter." in page and "Look on" in page
    assert "No prediction passes this filter." in client.get(f"{PAGE}/predictions?item=nobody").content.decode()


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
    assert page.count('<th scope="row" class="id">') == 7


def test_a_page_takes_as_many_queries_on_any_run(client: Client, run: Run) -> None:
    with CaptureQueriesContext(connection) as few:
        client.get(f"{PAGE}/predictions")
    Prediction.objects.filter(run=run).update(split="val", outcome="published")
    with CaptureQueriesContext(connection) as other:
        client.get(f"{PAGE}/predictions")
    assert len(few) == len(other) <= 6


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
    for outcome, n in (("published", 12), ("low_confidence", 200), ("rejected", 88)):
        assert re.search(rf'<a href="{PAGE}\?outcome={outcome}#predictions"[^>]*>{n}</a>', section)
        assert client.get(f"{PAGE}?outcome={outcome}").status_code == 200
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
