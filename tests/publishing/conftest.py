"""A Hub of our own, and a run's folder with a model in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import require_or_skip
from tests.services.hub import Hub
from training.publishing import hub as publishing_hub
from training.runfolder import RunFolder

RUN = "20260301T120000-aaaaaa"


@pytest.fixture
def own_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The Hub that HF_ENDPOINT names; the machine has a login of its own, which nobody may use."""
    if importlib.util.find_spec("huggingface_hub") is None:
        require_or_skip("huggingface_hub is not installed (it comes with the extras publish and train-text)")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_machine")
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub
    put_the_client_back()


def put_the_client_back() -> None:
    """Other tests of this process use the library as it comes."""
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import enable_progress_bars
    from huggingface_hub.utils._http import default_client_factory

    set_client_factory(default_client_factory)
    constants.HF_HUB_DISABLE_IMPLICIT_TOKEN = constants.HF_HUB_DISABLE_TELEMETRY = False
    enable_progress_bars()
    publishing_hub._prepare.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., RunFolder]:
    """`folder({"a/b.json": b"..."})`: a run's folder with these artifacts."""

    def make(files: dict[str, bytes]) -> RunFolder:
        for path, content in files.items():
            file = tmp_path / "runs" / RUN / "artifacts" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return RunFolder(tmp_path / "runs", RUN)

    return make
