"""A run's log without a browser: searched, loaded further back, shown around a line, downloaded; odd lines too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training import config
from training.models import Run, StepLine
from training.pages import log

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
HTMX = {"HX-Request": "true"}
MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def say(run: Run, *texts: str, level: str = "step") -> list[StepLine]:
    return StepLine.objects.bulk_create(StepLine(run=run, at=run.created_at, level=level, text=text) for text in texts)


def shown(text: str) -> list[str]:
    """The texts of the lines in a page or fragment."""
    return [re.sub(r"<[^>]+>", "", line) for line in re.findall(r"<li [^>]*>.*?<span>(.*?)</span>", text, re.DOTALL)]


# Search.


def test_a_word_is_found_whatever_its_case_and_the_newest_line_first(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="success")
    say(run, "Loss 0.5", "epoch 1", "LOSS 0.4", "100% done_now")
    found = client.get(f"{PAGE}/log/search?q=loss").text
    assert shown(found) == ["LOSS 0.4", "Loss 0.5"]
    assert "<mark>LOSS</mark> 0.4" in found and "2 lines were found in the whole log." in found
    assert shown(client.get(f"{PAGE}/log/search?q=0%25+done_").text) == ["100% done_now"]
    for pattern in ("%25", "_", "l.ss", "%5C", "'"):
        assert len(shown(client.get(f"{PAGE}/log/search?q={pattern}").text)) == (1 if pattern in ("%25", "_") else 0)


def test_lines_of_another_run_are_not_found(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    say(make_run("another"), "the word")
    assert "No line of the log is like that." in client.get(f"{PAGE}/log/search?q=word").text


def test_warnings_and_errors_are_found_by_their_level(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="success")
    say(run, "a step")
    say(run, "hot", "hotter", level="warning")
    say(run, "too hot", level="error")
    assert shown(client.get(f"{PAGE}/log/search?level=warning").text) == ["hotter", "hot"]
    assert shown(client.get(f"{PAGE}/log/search?level=error&q=hot").text) == ["too hot"]
    assert shown(client.get(f"{PAGE}/log/search?level=nonsense&q=hot").text) == ["too hot", "hotter", "hot"]
    assert shown(client.get(f"{PAGE}/log/search?q=+").text) == []


def test_found_lines_come_a_page_at_a_time(client: Client, make_run: MakeRun) -> None:
    say(make_run(status="success"), *(f"line {n:03}" for n in range(120)))
    address, found = f"{PAGE}/log/search?q=line", []
    for _ in range(3):
        page = client.get(address).text
        found += shown(page)
        further = re.search(r'id="search-further"[^>]* hx-get="([^"]+)"', page)
        address = further[1].replace("&amp;", "&") if further else ""
    assert found == [f"line {n:03}" for n in reversed(range(120))]
    assert not further and "The beginning of the log is reached." in page


def test_a_search_that_takes_long_says_how_far_it_came_and_goes_on(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "WINDOW", 10)
    run = make_run()
    lines = say(run, "needle", *("hay" for _ in range(34)), "needle")
    first = log.search(run, "needle", "", clock=iter(range(100)).__next__)
    assert ([line["id"] for line in first.lines], first.gave_up) == ([lines[-1].pk], True)
    assert first.further == lines[-10].pk, "one window was read"
    last = log.search(run, "needle", "", first.further, clock=lambda: 0.0)
    assert ([line["id"] for line in last.lines], last.further, last.gave_up) == ([lines[0].pk], 0, False)


def test_a_search_works_without_a_script_too(client: Client, make_run: MakeRun) -> None:
    say(make_run(status="success"), "a needle", "hay")
    page = client.get(f"{PAGE}?q=needle&level=step").text
    found = page[page.index('<div id="found">') : page.index('<ol id="log"')]
    assert shown(found) == ["a needle"]
    assert 'value="needle"' in page and '<option value="step" selected>' in page


@pytest.mark.parametrize("query", ["%00", "%ED%A0%80", "x" * 5000, "<script>", "%F0%9F%98%80", "(", "[a-"])
def test_no_word_breaks_the_search(client: Client, make_run: MakeRun, query: str) -> None:
    say(make_run(status="success"), "a <script> line 😀 ( [a-")
    answer = client.get(f"{PAGE}/log/search?q={query}")
    assert answer.status_code == 200
    assert "<script>" not in answer.text


# Around a line, and before the first.


def test_a_found_line_is_shown_among_its_neighbours(client: Client, make_run: MakeRun) -> None:
    lines = say(make_run(status="success"), *(f"line {n}" for n in range(100)))
    say(make_run("another"), "a stranger")
    found = client.get(f"{PAGE}/log/around?around={lines[50].pk}").text
    assert shown(found) == [f"line {n}" for n in range(30, 71)]
    assert re.search(r'class="step hit"[^>]*>.*line 50<', found)
    assert shown(client.get(f"{PAGE}/log/around?around={lines[0].pk}").text) == [f"line {n}" for n in range(21)]
    page = client.get(f"{PAGE}?around={lines[50].pk}").text
    assert page.count("line 50<") == 2  # among its neighbours, and in the log


@pytest.mark.parametrize("asked", ["", "0", "x", "999999999999", "9" * 30])
def test_no_line_has_no_neighbours(client: Client, make_run: MakeRun, asked: str) -> None:
    make_run(status="success")
    assert client.get(f"{PAGE}/log/around?around={asked}").status_code == 404
    assert client.get(f"{PAGE}?around={asked}").status_code == 200


def test_earlier_lines_are_loaded_until_the_first(client: Client, make_run: MakeRun) -> None:
    say(make_run(status="success"), *(f"line {n}" for n in range(1200)))
    page = client.get(PAGE).text
    found = shown(page)
    assert found[0] == "line 700" and "Load earlier lines" in page
    for _ in range(4):
        assert 'id="earlier" hidden' not in page
        first = re.search(r'id="log-before" value="(\d+)"', page)
        assert first
        page = client.get(f"{PAGE}/log/earlier?before={first[1]}", headers=HTMX).text
        found = shown(page) + found
    assert found == [f"line {n}" for n in range(1200)]
    assert 'id="earlier" hidden hx-swap-oob="true"' in page


# Odd lines.


def test_a_line_of_200_kb_is_cut_and_shown_whole_when_asked(client: Client, make_run: MakeRun) -> None:
    (line,) = say(make_run(status="success"), "a" * 2000 + "<b>" + "b" * 200_000)
    page = client.get(PAGE).text
    assert len(page) < 150_000
    link = re.search(r'href="([^"]+)" hx-get="\1"[^>]*>Show the whole line \(202,?003 characters\)', page)
    assert link
    rest = client.get(link[1], headers=HTMX).text
    assert rest.startswith('<span class="rest">&lt;b&gt;bbb') and len(rest) > 200_000
    assert client.get(link[1]).content.decode() == line.text
    assert client.get(link[1]).headers["Content-Type"] == "text/plain; charset=utf-8"
    assert client.get(f"{PAGE}/log/999999999").status_code == client.get(f"{PAGE}/log/{'9' * 30}").status_code == 404


def test_a_line_of_another_run_is_not_shown_whole(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    (line,) = say(make_run("another"), "secret")
    assert client.get(f"{PAGE}/log/{line.pk}").status_code == 404


def test_control_characters_and_marks_of_direction_do_not_reach_the_page(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="running")
    say(run, "red \x1b[31mand\x07 \u202egnp.exe\u2066 \x85tab\there 😀 שלום <i>x</i>")
    for page in (client.get(PAGE).text, client.get(f"{PAGE}/live?after=0", headers=HTMX).text):
        assert shown(page)[0] == "red [31mand gnp.exe tab\there 😀 שלום &lt;i&gt;x&lt;/i&gt;"


# Files.


def body(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


def test_the_files_that_a_worker_wrote_of_itself_are_downloaded(client: Client, make_run: MakeRun) -> None:
    make_run(status="error", error="it broke")
    folder = config.current().config.runs / ID
    folder.mkdir(parents=True)
    for name in ("stderr.log", "agent.log", "events.jsonl"):
        (folder / name).write_bytes(f"{name}\xff".encode("latin-1"))
    page = client.get(PAGE).text
    for name in ("stderr.log", "agent.log", "events.jsonl"):
        assert f'href="{PAGE}/files/{name}"' in page
        answer = client.get(f"{PAGE}/files/{name}")
        assert body(answer) == f"{name}\xff".encode("latin-1")
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{ID}-{name}"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "slurm.out" not in page


@pytest.mark.parametrize(
    "name", ["job.json", "agent.json", "..", ".", "stderr.log.part", "slurm.out", "%2e%2e%2fx", "%00"]
)
def test_nothing_else_of_the_folder_is_given(client: Client, make_run: MakeRun, name: str) -> None:
    make_run(status="success")
    folder = config.current().config.runs / ID
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    (folder / "agent.json").write_text("{}")
    assert client.get(f"{PAGE}/files/{name}").status_code == 404


def test_a_link_and_a_pipe_in_the_place_of_a_log_are_not_followed(
    client: Client, make_run: MakeRun, tmp_path: Path
) -> None:
    make_run(status="success")
    folder = config.current().config.runs / ID
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (folder / "stderr.log").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "agent.log")
    for name in ("stderr.log", "agent.log"):
        assert client.get(f"{PAGE}/files/{name}").status_code == 404
    assert "/files/" not in client.get(PAGE).text


def test_a_file_that_grows_is_sent_as_long_as_it_was(client: Client, make_run: MakeRun) -> None:
    make_run(status="running")
    folder = config.current().config.runs / ID
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_bytes(b"one")
    answer = client.get(f"{PAGE}/files/stderr.log")
    with (folder / "stderr.log").open("ab") as handle:
        handle.write(b" more")
    assert (body(answer), answer.headers["Content-Length"]) == (b"one", "3")
