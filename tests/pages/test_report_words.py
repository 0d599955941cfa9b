"""A check's report on the page: in the reader's language, but for what went wrong."""

from __future__ import annotations

import pytest
from django.utils import translation

from training import reportwords

SAID = {
    "this machine, CPU (2 cores)": "esta máquina, CPU (2 núcleos)",
    "this machine, Apple Metal (mps)": "esta máquina, Apple Metal (mps)",
    "CPU (1 core)": "CPU (1 núcleo)",
    "ssh to gpu.example.org, a run gets GPU 0 (A5000)": "ssh a gpu.example.org, una ejecución obtiene GPU 0 (A5000)",
    "slurm at login, a run is submitted with --gres=gpu:1": "slurm en login, una ejecución se envía con --gres=gpu:1",
    "A, 1 of 9 MB free, 3 % busy, a run gets this one": "A, 1 de 9 MB libres, 3 % ocupada, una ejecución obtiene esta",
    "lacks torch, peft: pip install torch": "faltan torch, peft: pip install torch",
    "2026-03-01 12:00:00 UTC (4 s ago)": "2026-03-01 12:00:00 UTC (hace 4 s)",
    "2026-03-01 12:10:00 UTC (before this server's clock was set back)": (
        "2026-03-01 12:10:00 UTC (antes de que se atrasara el reloj de este servidor)"
    ),
    "ready": "listo",
    "No GPU has 4000 MB free": "No GPU has 4000 MB free",
    "ssh to gpu.example.org, No GPU has 4000 MB free": "ssh to gpu.example.org, No GPU has 4000 MB free",
    "3.11.2 (/usr/bin/python3)": "3.11.2 (/usr/bin/python3)",
}


@pytest.mark.parametrize("english", SAID)
def test_what_is_known_is_said_in_the_readers_language_and_the_rest_stays(english: str) -> None:
    with translation.override("es"):
        assert reportwords.words(english) == SAID[english]
    with translation.override("en"):
        assert reportwords.words(english) == english


def test_names_of_facts_are_translated() -> None:
    with translation.override("pt-br"):
        assert reportwords.name("A job now") == "Um job agora"
        assert reportwords.name("Trainer x") == "Treinador x"
        assert reportwords.name("sbatch") == "sbatch"
