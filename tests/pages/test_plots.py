"""Plots are well-formed, say in words what they show, and bear whatever numbers a trainer reports."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from training import curves, plots
from training.models import MetricPoint, Run

ID = "20260301T120000-aaaaaa"
SVG = "{http://www.w3.org/2000/svg}"
UGLY = "<script>&\"'\u202e\x07\ufffe😀" + "x" * 90


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Tests use one run id after the other; a site never does."""
    curves._kept.clear()
    yield
    curves._kept.clear()


@pytest.fixture
def client(client: Client, owner: User, project_file: Any) -> Client:
    client.force_login(owner)
    return client


def drawn(*lines: plots.Line) -> ET.Element:
    return ET.fromstring(plots.curves("c", "loss", "in words", lines, curves.short))


def line(ys: Sequence[float], name: str = "train") -> plots.Line:
    return plots.Line(name, range(len(ys)), ys)


def numbers_of(svg: ET.Element) -> list[float]:
    """Every coordinate in it."""
    found = []
    for element in svg.iter():
        for name in ("points", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
            found += [float(number) for number in re.split(r"[ ,]", element.get(name, "")) if number]
    return found


NAN = math.nan
SERIES: dict[str, list[float]] = {
    "nothing": [],
    "one point": [0.5],
    "one that is no number": [NAN],
    "none is a number": [NAN] * 5,
    "infinite": [math.inf, -math.inf, 1.0],
    "constant": [3.0] * 10,
    "constant zero": [0.0] * 10,
    "gaps": [1.0, NAN, 2.0, 3.0, NAN, NAN, 4.0],
    "very large": [-1.7e308, 1.7e308, 0.0],
    "largest": [1.7976931348623157e308] * 3,
    "very small": [1e-320, 2e-320, 3e-320],
    "next to one another": [1.0, math.nextafter(1.0, 2.0), 1.0],
    "large and near": [1e15, 1e15 + 0.25, 1e15 + 0.5],
    "many": [math.sin(at / 700) for at in range(20_000)],
}


@pytest.mark.parametrize("name", SERIES)
def test_any_numbers_give_a_plot_within_its_frame(name: str) -> None:
    svg = drawn(line(SERIES[name]), line([0.5, 0.25], "val"))
    assert svg.get("role") == "img" and svg.get("viewBox") == f"0 0 {plots.WIDTH} {plots.HEIGHT}"
    assert all(-20 <= number <= plots.WIDTH + 20 for number in numbers_of(svg))
    alone = drawn(line(SERIES[name]))
    assert all(-20 <= number <= plots.WIDTH + 20 for number in numbers_of(alone))
    assert len(ET.tostring(alone)) < 20_000


def test_a_plot_has_a_title_a_description_and_no_style_of_its_own() -> None:
    svg = drawn(line([1.0, 2.0]))
    assert [svg.findtext(f"{SVG}title"), svg.findtext(f"{SVG}desc")] == ["loss", "in words"]
    assert (svg.get("aria-labelledby") or "").split() == [svg[0].get("id"), svg[1].get("id")]
    assert not any("style" in element.attrib or "fill" in element.attrib for element in svg.iter())


def test_ugly_names_stay_text() -> None:
    svg = ET.fromstring(plots.curves("c", UGLY, UGLY, [line([1.0, 2.0], UGLY)], curves.short))
    assert (svg.findtext(f"{SVG}title") or "").startswith("<script>&\"'😀x")


def test_a_gap_breaks_the_line_and_a_lonely_point_is_a_dot() -> None:
    svg = drawn(line([1.0, 2.0, NAN, 3.0, NAN, *[4.0] * 60]))
    assert len(svg.findall(f"{SVG}polyline")) == 2
    assert len(svg.findall(f"{SVG}circle")) == 1


def test_lines_are_told_apart_without_colours() -> None:
    svg = drawn(*(line([1.0 + at, 2.0], f"split {at}") for at in range(3)))
    assert [element.get("class") for element in svg.findall(f"{SVG}polyline")] == ["line s0", "line s1", "line s2"]
    assert [len(svg.findall(f"{SVG}{form}")) for form in ("circle", "rect")] == [2, 2]


def test_thinning_keeps_every_peak_the_ends_and_the_gaps() -> None:
    ys = [0.0] * 50_000
    ys[0], ys[17_321], ys[40_000], ys[-1] = 1.0, 99.0, -99.0, 2.0
    ys[20_000:22_000] = [NAN] * 2_000
    thin = plots.thinned(line(ys))
    assert len(thin.ys) <= 4 * plots.MOST_PIECES
    assert (thin.ys[0], thin.ys[-1], thin.xs[-1]) == (1.0, 2.0, 49_999)
    known = [y for y in thin.ys if math.isfinite(y)]
    assert (max(known), min(known)) == (99.0, -99.0)
    assert any(math.isnan(y) for y in thin.ys)
    assert list(thin.xs) == sorted(thin.xs)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.123, 0.129), (-5, 5), (1e-9, 3e-9), (-1e300, 1e300), (12, 13_000), (99.5, 100)]
)
def test_ticks_are_few_round_and_within(low: float, high: float) -> None:
    found = plots.scale([low, high], 0, 100).ticks
    assert 2 <= len(found) <= 8
    assert all(low - 1e-9 * abs(low) <= tick <= high + 1e-9 * abs(high) for tick in found)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (0.25, "0,25"),
        (12345.0, "12.345"),
        (12345.6, "12.350"),
        (1e-7, "1e-7"),
        (-2.5e12, "-2,5e12"),
        (0.001, "0,001"),
        (100, "100"),
    ],
)
def test_numbers_are_the_readers_own(value: float, written: str) -> None:
    with translation.override("pt"):
        assert curves.short(value).replace("\xa0", ".") == written


def test_a_calibration_plot_has_a_bar_for_each_bin() -> None:
    bins = [plots.Bin(0.6, 0.7, 3, 0.65, 0.4), plots.Bin(0.9, 1.0, 10, 1.0, 1.0), plots.Bin(0.0, 0.1, 1, 0.0, 0.0)]
    svg = ET.fromstring(plots.reliability("r", "title", "words", bins, str))
    assert len([element for element in svg.findall(f"{SVG}rect") if element.get("class") == "bar"]) == 3
    assert any(element.get("class") == "diagonal" for element in svg)


def report(run: Run, name: str, split: str, values: Sequence[float | None], steps: bool = True) -> None:
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, name=name, split=split, step=at if steps else None, value=value)
        for at, value in enumerate(values)
    )


def svgs(page: str) -> list[ET.Element]:
    return [ET.fromstring(found) for found in re.findall(r'<svg class="plot" xmlns.*?</svg>', page, re.DOTALL)]


def test_a_page_has_a_chart_for_each_metric_with_its_numbers_beside(
    client: Client, make_run: Callable[..., Run]
) -> None:
    run = make_run(status="success")
    report(run, "loss", "train", [0.9, None, 0.25])
    report(run, "loss", "val", [0.8, 0.5, 0.5])
    report(run, UGLY[:100], "", [1.0])
    report(run, "no step", "train", [5.0, 6.0], steps=False)
    page = client.get(f"/admin/training/runs/{ID}").content.decode()
    assert [svg.findtext(f"{SVG}title") for svg in svgs(page)] == ["loss", "no step"]
    assert "From 0.9 to 0.25 over 2 points; lowest 0.25 at step 2, highest 0.9 at step 0. 1 value is no number." in page
    assert "<script>&" not in page and "\u202e" not in page
    assert "hx-trigger" not in page[page.index('id="curves"') : page.index('id="curves-title"')]


def test_a_metric_of_one_step_is_said_and_not_drawn(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success")
    report(run, "accuracy", "train", [0.98])
    report(run, "accuracy", "val", [0.9])
    page = client.get(f"/admin/training/runs/{ID}").content.decode()
    assert svgs(page) == []
    assert "<li><bdi>train</bdi>: One value, 0.98.</li><li><bdi>val</bdi>: One value, 0.9.</li>" in page


def test_titles_of_known_metrics_are_in_the_readers_language() -> None:
    with translation.override("es"):
        assert [curves.title_of(name) for name in ("accuracy", "loss", "topic macro_f1")] == [
            "exactitud",
            "pérdida",
            "topic F1 macro",
        ]
        assert curves.title_of("my_metric") == "my_metric" and curves.title_of("") == ""


def test_curves_come_while_the_run_goes_and_stop_at_its_end(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="running")
    page = client.get(f"/admin/training/runs/{ID}").content.decode()
    assert f'<div id="curves" hx-get="/admin/training/runs/{ID}/curves" hx-trigger="every 5s"' in page
    assert client.get(f"/admin/training/runs/{ID}/curves").status_code == 204
    report(run, "loss", "train", [0.9, 0.5])
    fragment = client.get(f"/admin/training/runs/{ID}/curves").content.decode()
    following = re.search(r'hx-get="([^"]+)" hx-trigger="every 5s"', fragment)
    assert following and len(svgs(fragment)) == 1
    assert client.get(following[1]).status_code == 204
    report(run, "loss", "train", [0.1])
    assert "over 3 points" in client.get(following[1]).content.decode()
    Run.objects.filter(pk=ID).update(status="cancelled", finished_at=run.created_at)
    assert "hx-trigger" not in client.get(following[1]).content.decode()


def test_very_many_points_come_after_the_page_and_are_read_once(
    client: Client, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "KEEP_FROM", 50)
    run = make_run(status="running")
    report(run, "loss", "train", [1.0 / (at + 1) for at in range(60)])
    page = client.get(f"/admin/training/runs/{ID}").content.decode()
    assert f'<div id="curves" hx-get="/admin/training/runs/{ID}/curves" hx-trigger="load"' in page
    assert curves.read(run).n == 60
    report(run, "loss", "val", [0.5])
    MetricPoint.objects.filter(run=run, split="train").update(value=5.0)  # nobody does; it shows what is read again
    points = curves.read(run)
    assert (points.n, points.series["loss", "train"][1][0], points.series["loss", "val"][1][0]) == (61, 1.0, 0.5)


def test_more_metrics_than_charts_are_told_of(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success")
    for number in range(curves.MOST_CHARTS + 3):
        report(run, f"metric {number}", "train", [1.0, 2.0])
    report(run, "metric 0", "val", [None, None])
    page = client.get(f"/admin/training/runs/{ID}").content.decode()
    assert len(svgs(page)) == curves.MOST_CHARTS
    assert "3 more metrics have no chart here" in page
