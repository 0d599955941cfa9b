"""The GPU that a run gets on a shared host: what nvidia-smi says, and what follows from that."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .install import closed, environment_below, is_made, is_whole, python_of
from .probe import Gpu, Torch, has_kernels, of_machine, parse_nvidia_smi, torch_facts

NVIDIA_SMI_TIMEOUT_S = 10.0  # a driver that wakes up takes seconds; one that hangs takes for ever
TORCH_TIMEOUT_S = 40.0  # for its import from a cold network share
FIELDS = "index,name,uuid,memory.free,memory.total,utilization.gpu"
CAPABILITY = "compute_cap"  # drivers before 510 do not know this field and refuse the whole question
DRIVER = "/proc/driver/nvidia/version"
UNKNOWN_MB = -1  # the free memory of a card that does not tell (some have none of their own)

ASK = "potato:ask "  # and the interpreter

AUTO = "auto"
NONE = "none"


@dataclass(frozen=True)
class Survey:
    """What nvidia-smi said: the cards, or why it could not say (then nothing is known of any card)."""

    cards: Tuple[Gpu, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class Choice:
    """What a run gets. `visible` is its CUDA_VISIBLE_DEVICES (None leaves it alone), `title` its name for a person.

    With a `refusal` the run must not start: one sentence, its error code and a hint.
    """

    visible: Optional[str] = None
    title: str = "CPU"
    cards: Tuple[Gpu, ...] = ()
    warnings: Tuple[str, ...] = ()
    refusal: str = ""
    code: str = ""
    hint: str = ""
    unfit: Tuple[str, ...] = field(default=())  # uuids of the cards that the torch there has no kernels for


def survey(patience_s: Optional[float] = None) -> Survey:
    """Ask nvidia-smi; a host without the program and without the driver has no GPU, a failed answer is no such host."""
    until = time.monotonic() + (NVIDIA_SMI_TIMEOUT_S if patience_s is None else patience_s)
    program = shutil.which("nvidia-smi")
    if program is None:
        if os.path.exists(DRIVER):
            return Survey(trouble="the NVIDIA driver is loaded, and nvidia-smi is not on PATH")
        return Survey()
    found = _ask(program, FIELDS + "," + CAPABILITY, until)
    return _ask(program, FIELDS, until) if CAPABILITY in found.trouble else found


def _ask(program: str, fields: str, until: float) -> Survey:
    argv = [program, "--query-gpu=" + fields, "--format=csv,noheader,nounits"]
    patience_s = max(0.1, until - time.monotonic())
    try:
        asked = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Survey(trouble="nvidia-smi cannot be run: %s" % error.strerror)
    try:
        text = asked.communicate(timeout=patience_s)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        # Its end is not waited for: what hangs in the driver is not even ended by SIGKILL.
        with suppress(OSError):
            os.killpg(asked.pid, signal.SIGKILL)
        return Survey(trouble="nvidia-smi did not answer within %.0f s" % patience_s)
    if asked.returncode != 0:
        return Survey(trouble="nvidia-smi failed with exit code %d: %s" % (asked.returncode, _first_line(text)))
    return _read(text)


def _read(text: str) -> Survey:
    """The cards of an answer; one of which nothing can be read is a trouble, for a card may be behind it."""
    cards = tuple(card for card in (_card(line) for line in text.split("\n")) if card is not None)
    if not cards and text.strip() and "no devices were found" not in text.lower():
        return Survey(trouble="nvidia-smi answered what is no list of GPUs: %s" % _first_line(text))
    return Survey(cards)


def _card(line: str) -> Optional[Gpu]:
    """A card of one line; where it does not tell its memory ("[N/A]"), that is unknown and the card is there."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) not in (6, 7) or not cells[0].isdigit() or not cells[2].startswith(("GPU-", "MIG-")):
        return None
    plain = cells + [""] * (7 - len(cells))
    known = parse_nvidia_smi(",".join(plain))
    if known:
        return known[0]
    busy = int(plain[5]) if plain[5].isdigit() else None
    total = int(plain[4]) if plain[4].isdigit() else UNKNOWN_MB
    return Gpu(int(plain[0]), plain[1], plain[2], UNKNOWN_MB, total, busy, plain[6] if plain[6][:1].isdigit() else "")


def _first_line(text: str) -> str:
    return next((line.strip()[:200] for line in text.split("\n") if line.strip()), "it said nothing")


def choose(wanted: str, min_free_mb: int, found: Survey, unfit: Sequence[str] = (), host: str = "this host") -> Choice:
    """The GPUs of a run: `wanted` is auto, none, or numbers as nvidia-smi counts them ("1", "0,1").

    Free memory decides, not utilisation: a busy card is slow, a full one fails. `unfit` are the uuids of cards that the
    torch there has no kernels for.
    """
    if wanted == NONE:
        return Choice(visible="")
    if found.trouble:
        return Choice(refusal=_capital(found.trouble) + " on " + host, code="gpu_unknown", hint=_AROUND)
    if wanted != AUTO:
        return _pinned([int(number) for number in wanted.split(",")], found.cards, host)
    if not found.cards:
        return Choice(unfit=tuple(unfit))
    return _freest(min_free_mb, found.cards, tuple(unfit))


_AROUND = "Run nvidia-smi there by hand; with gpus: none a run trains on the CPU"


def _freest(min_free_mb: int, cards: Sequence[Gpu], unfit: Tuple[str, ...]) -> Choice:
    fit = [card for card in cards if card.uuid not in unfit]
    if not fit:
        sentence = "This host's torch has no kernels for any of its GPUs"
        hint = "Install a torch that is built for these cards, or set gpus: none to train on the CPU"
        return Choice(refusal=sentence, code="no_kernels", hint=hint, unfit=unfit)
    roomy = [card for card in fit if card.free_mb >= min_free_mb]
    if roomy:
        return _chosen([max(roomy, key=lambda card: (card.free_mb, -card.index))], unfit=unfit)
    silent = [card for card in fit if card.free_mb == UNKNOWN_MB]
    if silent:
        warning = "GPU %d does not say how much of its memory is free" % silent[0].index
        return _chosen(silent[:1], (warning,), unfit)
    hint = "The most that is free is %d MB, on GPU %d; wait, or lower min_free_gpu_mb" % _most_free(fit)
    return Choice(refusal="No GPU has %d MB free" % min_free_mb, code="no_free_gpu", hint=hint, unfit=unfit)


def _most_free(cards: Sequence[Gpu]) -> Tuple[int, int]:
    best = max(cards, key=lambda card: card.free_mb)
    return best.free_mb, best.index


def _pinned(numbers: Sequence[int], cards: Sequence[Gpu], host: str) -> Choice:
    by_number = {card.index: card for card in cards}
    absent = [number for number in numbers if number not in by_number]
    if absent:
        there = ", ".join(str(number) for number in sorted(by_number)) or "none"
        sentence = "There is no GPU %d on %s; its GPUs are: %s" % (absent[0], host, there)
        hint = (
            "Name one of these in gpus of this backend"
            if cards
            else "With gpus: auto, or none, a run trains on the CPU"
        )
        return Choice(refusal=sentence, code="no_such_gpu", hint=hint)
    return _chosen([by_number[number] for number in numbers])


def _chosen(cards: List[Gpu], warnings: Tuple[str, ...] = (), unfit: Tuple[str, ...] = ()) -> Choice:
    # By uuid: CUDA counts cards by speed and nvidia-smi by slot, so that a number may mean two of them.
    title = ", ".join("GPU %d (%s)" % (card.index, card.name) for card in cards)
    return Choice(",".join(card.uuid for card in cards), title, tuple(cards), warnings, unfit=unfit)


def without_kernels(cards: Sequence[Gpu], torch: Optional[Torch]) -> List[str]:
    """The uuids of the cards that a torch cannot compute on; none where there is no torch, or it says nothing."""
    if torch is None or torch.error:
        return []
    return [card.uuid for card in cards if not has_kernels(card.capability, torch.arch_list)]


def environment_of(choice: Choice) -> Mapping[str, str]:
    """What a worker gets in its environment for the choice."""
    ours = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return ours if choice.visible is None else dict(ours, CUDA_VISIBLE_DEVICES=choice.visible)


def _capital(sentence: str) -> str:
    return sentence if sentence.startswith("nvidia-smi") else sentence[:1].upper() + sentence[1:]


# All of it, for a server that looks at this host.


def facts(
    wanted: str,
    min_free_mb: int,
    packages: Sequence[str],
    code: str = "",
    patience_s: Optional[float] = None,
    directory: str = "",
    trains: bool = True,
) -> Dict[str, Any]:
    """What a run on this host would get; plain JSON. torch is imported (a second or more) where there is a card.

    `code` is the folder where our code would be, named by its hash, `directory` the one that we would write in.
    `patience_s` holds for nvidia-smi and torch both. `trains`: this is the interpreter that will; else its torch is
    not asked, and no card is passed over.
    """
    until = time.monotonic() + (TORCH_TIMEOUT_S if patience_s is None else patience_s)
    found = survey(patience_s)
    torch = _torch_facts(until) if found.cards and wanted != NONE and trains else None
    unfit = without_kernels(found.cards, torch)
    about = of_machine(packages)
    return dict(
        about,
        gpus=[asdict(card) for card in found.cards],
        torch=asdict(torch) if torch else None,
        choice=asdict(choose(wanted, min_free_mb, found, unfit, about["host"])),
        has_code=is_whole(code, os.path.basename(code)),
        closed=closed(directory) if directory else "",
        trains=trains,
    )


def _torch_facts(until: float) -> Optional[Torch]:
    """What torch says in the time that is left; in a thread, for an import cannot be called off."""
    patience_s = max(1.0, until - time.monotonic())
    said: List[Optional[Torch]] = [Torch("", error="its import had not ended within %.0f s" % patience_s)]

    def ask() -> None:
        said[0] = torch_facts()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience_s)
    return said[0]


def main(argv: Sequence[str]) -> int:
    """`python -m training.agent survey` prints the facts as one line of JSON, which begins with {"host": .

    With `--install` it names packages for an environment below `--directory`, over this interpreter, which is called
    `--called`. Where that is there, its own interpreter is to be asked instead, `--inside`: a line names it, and that
    is all. Where it is not, the facts say so.
    """
    parser = argparse.ArgumentParser("survey")
    parser.add_argument("gpus")
    parser.add_argument("min_free_mb", type=int)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--code", default="")
    parser.add_argument("--patience", type=float)
    parser.add_argument("--directory", default="")
    parser.add_argument("--called", default=sys.executable)
    parser.add_argument("--install", action="append", default=[])
    parser.add_argument("--inside", action="store_true")
    asked = parser.parse_args(argv)
    if asked.install and not asked.inside:
        environment = environment_below(asked.directory, asked.called, asked.install)
        if is_made(environment):
            print("\n%s%s" % (ASK, python_of(environment)))
            return 0
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    trains = asked.inside or not asked.install
    line = json.dumps(
        facts(asked.gpus, asked.min_free_mb, asked.packages, asked.code, asked.patience, asked.directory, trains)
    )
    # Below what a wrapper of Python may have begun to print.
    print("\n" + line, flush=True)
    if threading.active_count() > 1:
        os._exit(0)  # an end in order would wait for the import that hangs
    return 0
