"""The `Runs on` menu: every place with what is known of it without connecting, and the same said to who posts it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from training import backends, checking, config, menu, tokens
from training.agent import trainers
from training.backends import connection
from training.backends.base import Report
from training.models import BackendToken, Run, SupervisorLease

PLACES = """
model_training:
  backend: gpu-server
  backends:
    gpu-server: {type: ssh, host: gpu.example.org, description: Two A5000 & a fan}
    cluster: {type: slurm, host: login.example.org, remote_dir: /shared/x, ssh_client: paramiko}
    lab: {type: agent, description: The machine in room 7}
"""


@pytest.fixture
def project(project_file: Path) -> Path:
    project_file.write_text(project_file.read_text(encoding="utf-8") + PLACES, encoding="utf-8")
    return project_file


@pytest.fixture
def client(client: Client, owner: User, project: Path) -> Client:
    client.force_login(owner)
    return client


def form(**changed: Any) -> dict[str, Any]:
    return {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": "local", "seed": "0", **changed}


def options(page: str) -> dict[str, tuple[str, str]]:
    """name -> (attributes, text) of the menu's options."""
    inside = re.search(r'<select name="backend".*?</select>', page, re.DOTALL)
    assert inside
    return {
        name: (attributes.strip(), text)
        for name, attributes, text in re.findall(r'<option value="([^"]*)"([^>]*)>([^<]*)</option>', inside[0])
    }


def page(client: Client, address: str = "/admin/training") -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer
    return answer.content.decode()


class TestThePlaces:
    def test_are_all_named_with_type_host_and_description(self, client: Client) -> None:
        tokens.issue("lab")
        BackendToken.objects.update(last_seen=timezone.now())
        assert options(page(client)) == {
            "gpu-server": ("selected", "gpu-server (ssh to gpu.example.org): Two A5000 &amp; a fan"),
            "local": ("", "local (this machine)"),
            "cluster": ("", "cluster (slurm at login.example.org)"),
            "lab": ("", "lab (agent): The machine in room 7"),
        }

    def test_one_whose_agent_has_no_token_is_greyed_with_the_command(self, client: Client, project: Path) -> None:
        shown = page(client)
        assert options(shown)["lab"] == ("disabled", "lab (agent): no token issued yet")
        assert f"<code>potato training register lab {project}</code>" in shown

    def test_one_whose_agent_is_quiet_is_not_greyed_and_says_when_it_was_seen(self, client: Client) -> None:
        tokens.issue("lab")
        assert options(page(client))["lab"] == ("", "lab (agent): no agent has asked yet")
        BackendToken.objects.update(last_seen=timezone.now() - timedelta(minutes=3, seconds=5))
        shown = page(client)
        assert options(shown)["lab"][0] == ""
        assert re.search(r"lab \(agent\): last seen 3 min \d+ s ago", options(shown)["lab"][1])
        assert "a run waits until one asks" in shown
        BackendToken.objects.update(last_seen=timezone.now() + timedelta(minutes=3))
        shown = page(client)
        assert options(shown)["lab"][1] == "lab (agent): not seen since this server's clock was set back"
        assert "was not seen since this server's clock was set back; a run waits" in shown

    def test_those_reached_by_ssh_need_a_client(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(menu, "missing_client", lambda named: "ssh" if named == "auto" else "paramiko")
        shown = options(page(client))
        assert shown["gpu-server"] == (
            "selected disabled",
            "gpu-server (ssh to gpu.example.org): This machine has no program ssh",
        )
        assert "lacks the package paramiko" in shown["cluster"][1]

    def test_a_trainer_without_its_packages_is_not_for_this_machine(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trainers, "is_importable", lambda name: name != "torch")
        assert options(page(client))["local"][0] == ""
        changed = page(client, "/admin/training/parameters?trainer=hf-text-classification&backend=local")
        attributes, text = options(changed)["local"]
        assert attributes == "selected disabled"
        assert "This machine lacks torch, which trainer hf-text-classification needs" in text
        assert "pip install torch" in changed
        assert options(changed)["gpu-server"][0] == ""

    def test_a_trainer_of_this_machine_alone_greys_all_others(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone = trainers.Trainer("alone", "Alone", "nowhere", ("nominal",), local_only=True)
        monkeypatch.setitem(trainers.TRAINERS, "alone", alone)
        shown = options(page(client, "/admin/training/parameters?trainer=alone"))
        assert [name for name, (attributes, _) in shown.items() if "disabled" not in attributes] == ["local"]
        assert "Trainer alone runs on this machine only" in shown["gpu-server"][1]

    def test_one_whose_code_does_not_load_costs_the_others_nothing(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., Run]
    ) -> None:
        make_run(status="success", backend="gpu-server")
        for type_ in ("ssh", "agent"):
            monkeypatch.setitem(backends.BACKENDS, type_, "training.backends.nowhere:Broken")
        shown = page(client)
        attributes, text = options(shown)["gpu-server"]
        assert attributes == "selected disabled"
        assert text.startswith("gpu-server (ssh): The code of the backend type ssh does not load here: ModuleNotFound")
        assert options(shown)["cluster"][0] == ""
        assert "No module named" in client.post("/admin/training/check", {"backend": "gpu-server"}).content.decode()

    def test_take_as_many_queries_for_many_agents(
        self, client: Client, project: Path, django_assert_max_num_queries: Any
    ) -> None:
        more = "".join(f"    lab{n}: {{type: agent}}\n" for n in range(30))
        project.write_text(project.read_text(encoding="utf-8") + more, encoding="utf-8")
        for n in range(0, 30, 2):
            tokens.issue(f"lab{n}")
        project_config = config.current().config
        with django_assert_max_num_queries(2):
            found = menu.entries(project_config, None, timezone.now())
        assert sum(1 for entry in found if entry.why_not) == 16


class TestTheServer:
    @pytest.mark.parametrize(
        ("backend", "words"),
        [("lab", "no token issued yet"), ("nowhere", "names no backend"), ("a\0b", "names no backend")],
    )
    def test_refuses_what_the_menu_greys(self, client: Client, backend: str, words: str) -> None:
        answer = client.post("/admin/training/start", form(backend=backend))
        assert answer.status_code == 422
        said = re.search(r'id="error-backend"[^>]*>(.*?)</p>', answer.content.decode(), re.DOTALL)
        assert said and words in said[1]
        assert not Run.objects.exists()

    def test_keeps_the_choice_of_a_greyed_place(self, client: Client) -> None:
        shown = client.post("/admin/training/start", form(backend="lab")).content.decode()
        assert options(shown)["lab"][0] == "selected disabled"
        assert '<input type="hidden" name="backend" value="lab">' in shown  # a disabled option is not sent

    def test_takes_a_run_for_an_agent_that_is_quiet(self, client: Client) -> None:
        tokens.issue("lab")
        assert client.post("/admin/training/start", form(backend="lab")).status_code == 302
        assert Run.objects.get().backend == "lab"

    def test_refuses_all_where_training_is_turned_off(self, client: Client, project: Path) -> None:
        text = project.read_text(encoding="utf-8")
        project.write_text(text.replace("model_training:\n", "model_training:\n  enabled: false\n"), encoding="utf-8")
        shown = page(client)
        assert "Training is turned off" in shown and '<fieldset class="plain" disabled>' in shown
        assert 'id="start-button"' in shown and re.search(r'id="start-button"[^>]* disabled', shown)
        answer = client.post("/admin/training/start", form())
        assert answer.status_code == 422
        assert "model_training.enabled is false" in answer.content.decode()
        assert not Run.objects.exists()


class TestTheForm:
    def test_is_not_for_who_may_not_start_and_says_so(self, project: Path, db: None) -> None:
        user = User.objects.create_user("reader", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_run"))
        reader = Client()
        reader.force_login(user)
        shown = page(reader)
        assert 'id="start-form"' not in shown
        assert "your account lacks the permission" in shown

    def test_says_that_a_run_waits_where_no_supervisor_works(self, client: Client, supervised: SupervisorLease) -> None:
        assert "waits until one is" not in page(client)
        supervised.delete()
        assert "No supervisor is running: a run that you start now waits until one is." in page(client)
        assert client.post("/admin/training/start", form()).status_code == 302

    def test_greys_the_schemas_that_the_trainer_does_not_fit(self, client: Client, project: Path) -> None:
        scheme = (
            'annotation_schemes:\n  - {annotation_type: slider, name: warmth, description: "How warm?", '
            "min_value: 0, max_value: 1, starting_value: 0}\n  - {annotation_type: text, name: why, description: Why}\n"
        )
        text = project.read_text(encoding="utf-8").replace("annotation_schemes:\n", scheme)
        project.write_text(text, encoding="utf-8")
        changed = page(client, "/admin/training/parameters?trainer=hf-text-classification&schemas=warmth")
        assert re.search(r'value="warmth" disabled> <bdi>warmth</bdi> <small>its answers are a number', changed)
        assert re.search(r'value="why" disabled> <bdi>why</bdi> <small>Schema &#x27;why&#x27; is free text', changed)
        assert 'value="sentiment" checked>' in changed  # for the choice did not fit

    def test_refuses_an_unknown_parameter_and_keeps_what_was_typed(self, client: Client) -> None:
        answer = client.post("/admin/training/start", form(**{"param-Cs": "3", "param-C": "2.5"}))
        shown = answer.content.decode()
        assert answer.status_code == 422
        assert "no parameter “Cs”" in shown and 'value="2.5"' in shown

    def test_points_from_each_control_to_its_error_and_to_its_help(self, client: Client) -> None:
        shown = client.post("/admin/training/start", form(**{"param-C": "-3", "seed": "x"})).content.decode()
        control = re.search(r'<input type="number" name="param-C"[^>]*>', shown)
        assert control
        assert 'aria-describedby="help-param-C error-param-C" aria-invalid="true" autofocus' in control[0]
        assert 'value="-3"' in control[0]
        assert shown.count("autofocus") == 1
        seed = re.search(r'<input type="number" name="seed"[^>]*>', shown)
        assert seed and 'aria-describedby="help-seed error-seed" aria-invalid="true"' in seed[0]

    @pytest.mark.parametrize(
        "changed", [{"param-C": "4\0"}, {"seed": "\0"}, {"token": "\0"}, {"schemas": ["\0"]}, {"trainer": "\0"}]
    )
    def test_bears_the_nul_character_anywhere(self, client: Client, changed: dict[str, Any]) -> None:
        assert client.post("/admin/training/start", form(**changed)).status_code == 422
        assert not Run.objects.exists()


class TestOneRunOfOneForm:
    def test_is_started_of_two_requests_at_once(
        self, transactional_db: None, owner: User, project_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both have seen that the token is new before either starts."""
        from django.db import connections

        from training import asking

        both = threading.Barrier(2, timeout=30)
        look_at = asking.look_at

        def together(*arguments: Any) -> None:
            look_at(*arguments[:2])
            both.wait()

        monkeypatch.setattr(asking, "look_at", together)
        first = Client()
        first.force_login(owner)
        places = []

        def send() -> None:
            tab = Client()
            tab.cookies = first.cookies
            places.append(tab.post("/admin/training/start", form(token="one")).headers["Location"])
            connections.close_all()

        senders = [threading.Thread(target=send) for _ in range(2)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert len(set(places)) == 1 and len(places) == 2
        assert Run.objects.count() == 1

    def test_is_not_that_of_another_form(self, client: Client) -> None:
        for token in ("one", "two"):
            client.post("/admin/training/start", form(token=token))
        assert Run.objects.count() == 2


class TestALook:
    def test_is_one_for_all_who_ask_at_once_and_is_left_when_it_hangs(self, project: Path) -> None:
        asked, go = [], threading.Event()

        class Slow(backends.Backend):
            type = "slow"
            label = "slow (a tortoise)"  # type: ignore[assignment]

            def check(self) -> Report:
                asked.append(self.name)
                assert go.wait(30)
                return Report(self.name, "slow", "came after all")

            start = attach = None  # type: ignore[assignment]

        looks, place = checking.Looks(), Slow("slow", {"a": 1})
        left = looks.look(place, 0.05)
        assert not left.ok
        assert "had not ended after" in left.concerns[0].message and left.concerns[0].code == "look_unfinished"
        waiting = threading.Timer(0.1, go.set)
        waiting.start()
        assert looks.look(Slow("slow", {"a": 1}), 30).headline == "came after all"
        assert asked == ["slow"]
        assert looks.look(place, 30).headline == "came after all"
        assert asked == ["slow", "slow"]

    def test_that_fails_is_a_report_and_no_page_of_errors(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(self: Any) -> Report:
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr("training.backends.local.LocalBackend.check", fail)
        shown = client.post("/admin/training/check", {"backend": "local"}).content.decode()
        assert "A run could not start here." in shown and "ZeroDivisionError" in shown

    def test_names_each_problem_with_its_hint_and_when_it_was_made(self, client: Client, project: Path) -> None:
        shown = client.post("/admin/training/check", {"backend": "lab"}).content.decode()
        assert "A run could not start here." in shown
        assert f"<small>potato training register lab {project}</small>" in shown
        assert re.search(r"Checked .*\d\d:\d\d:\d\d", shown)


@pytest.mark.parametrize(
    ("client_named", "program", "package", "missing"),
    [
        ("auto", True, True, ""),
        ("auto", False, True, ""),
        ("auto", False, False, "paramiko"),
        ("openssh", False, True, "ssh"),
        ("paramiko", True, False, "paramiko"),
    ],
)
def test_what_an_ssh_place_needs_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, client_named: str, program: bool, package: bool, missing: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/ssh" if program else None)
    monkeypatch.setattr(connection, "find_spec", lambda name: object() if package else None)
    assert connection.missing_client(client_named) == missing
