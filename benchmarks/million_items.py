"""A million items with two annotators each: read, resolved, bundled. Time and peak memory, beside a plain script.

    .venv/bin/python benchmarks/million_items.py [--items 100000 1000000] [--rounds 3] [--form jsonl] [--trail]

Ours is `Project.select` (consensus) and `bundle.build`. The plain script does what a person would write first:
json.load of everything, dicts, a majority vote, json.dump of every row; it resolves by the easier rule and checks
nothing. Both run in processes of their own, alternating; figures are medians, memory is the peak of the process
(ru_maxrss). `cpu_s` is the time that the process itself ran, which a busy machine does not change.
Texts are the real sentences of shared/datasets/uci-sentiment-sentences, repeated under other ids.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SENTENCES = HERE.parents[1] / "shared" / "datasets" / "uci-sentiment-sentences" / "sentences.csv"
CONFIG = """\
annotation_task_name: "A million items"
data_files: ["data.{form}"]
item_properties: {{id_key: id, text_key: text}}
output_annotation_dir: annotation_output
annotation_schemes:
  - {{annotation_type: radio, name: sentiment, description: "?", labels: [positive, neutral, negative]}}
"""
LABELS = ("positive", "neutral", "negative")
ANNOTATORS = {"ana": 0.9, "ben": 0.7}  # how often each is right
LARGEST_MB = 1500
BLOCK_BYTES = 1 << 20


def make(folder: Path, n: int, form: str, trail: str) -> None:
    """Write a project of n items, as Potato would have it."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        sentences = [row["text"] for row in csv.DictReader(file)]
    items = [{"id": f"rev-{at:07d}", "text": sentences[at % len(sentences)]} for at in range(n)]
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(form=form), encoding="utf-8")
    write_items(folder / f"data.{form}", items, form)
    chance = random.Random(0)
    truth = [chance.choice(LABELS) for _ in items]
    for user, skill in ANNOTATORS.items():
        said = [label if chance.random() < skill else chance.choice(LABELS) for label in truth]
        write_user(folder / "annotation_output" / user, user, [item["id"] for item in items], said, trail == "trail")


def write_items(file: Path, items: list[dict[str, str]], form: str) -> None:
    with file.open("w", encoding="utf-8", newline="") as out:
        if form == "csv":
            table = csv.writer(out)
            table.writerow(["id", "text"])
            table.writerows((item["id"], item["text"]) for item in items)
        elif form == "json":
            json.dump(items, out, indent=1)
        else:
            out.writelines(json.dumps(item) + "\n" for item in items)


def write_user(folder: Path, user: str, ids: list[str], said: list[str], trail: bool) -> None:
    folder.mkdir(parents=True)
    state: dict[str, Any] = {
        "user_id": user,
        "instance_id_ordering": ids,
        "instance_id_to_behavioral_data": {id: a_trail(label) for id, label in zip(ids, said, strict=True)}
        if trail
        else {},
        "instance_id_to_label_to_value": {
            id: [[{"schema": "sentiment", "name": label}, label]] for id, label in zip(ids, said, strict=True)
        },
        "instance_id_to_span_to_value": {},
    }
    with (folder / "user_state.json").open("w", encoding="utf-8") as out:
        json.dump(state, out, indent=2)


def a_trail(label: str) -> dict[str, Any]:
    change = {"timestamp": 1.0, "schema_name": "sentiment", "label_name": label, "action": "select", "source": "user"}
    return {"interactions": [{"event_type": "save"}], "annotation_changes": [change]}


def ours(config: Path, target: Path) -> dict[str, float]:
    sys.path.insert(0, str(HERE.parent))
    from training import bundle
    from training.config import load
    from training.project import Project

    start = time.perf_counter()
    selection = Project(load(config).config).select(["sentiment"])
    selected = time.perf_counter()
    made = bundle.build(selection, target)
    built = time.perf_counter()
    return {"select_s": selected - start, "build_s": built - selected, "rows": sum(made.splits.values())}


def plain(config: Path, target: Path) -> dict[str, float]:
    """What one would write first."""
    start = time.perf_counter()
    items = dict(plain_items(config.parent))
    votes: dict[str, list[str]] = {}
    for file in sorted((config.parent / "annotation_output").glob("*/user_state.json")):
        state = json.load(file.open(encoding="utf-8"))
        for id, pairs in state["instance_id_to_label_to_value"].items():
            for key, _ in pairs:
                votes.setdefault(id, []).append(key["name"])
    target.mkdir()
    rows = 0
    with (target / "train.jsonl").open("w") as train, (target / "test.jsonl").open("w") as test:
        for id, said in votes.items():
            label = Counter(said).most_common(1)[0][0]
            file_of_row = train if random.Random(id).random() < 0.85 else test
            file_of_row.write(
                json.dumps({"instance_id": id, "text": items[id], "targets": {"sentiment": label}}) + "\n"
            )
            rows += 1
    return {"total_s": time.perf_counter() - start, "rows": rows}


def plain_items(folder: Path) -> Iterator[tuple[str, str]]:
    file = next(folder.glob("data.*"))
    with file.open(encoding="utf-8", newline="") as lines:
        if file.suffix == ".csv":
            yield from ((row["id"], row["text"]) for row in csv.DictReader(lines))
        elif file.suffix == ".json":
            yield from ((item["id"], item["text"]) for item in json.load(lines))
        else:
            yield from ((item["id"], item["text"]) for item in map(json.loads, lines))


def measured(which: str, config: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=config.parent.parent) as target:
        return in_a_process(which, str(config), str(Path(target) / "bundle"))


def in_a_process(*words: str) -> dict[str, float]:
    """Also the project is made in one: a process inherits the peak memory of the one that started it."""
    done = subprocess.run([sys.executable, __file__, "--child", *words], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def child(which: str, config: str, target: str, *more: str) -> None:
    if which == "make":
        make(Path(config), int(target), *more)
        return print("{}")
    started = time.process_time()
    figures = {"ours": ours, "plain": plain}[which](Path(config), Path(target))
    figures.setdefault("total_s", figures.get("select_s", 0) + figures.get("build_s", 0))
    figures["cpu_s"] = time.process_time() - started
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return print(json.dumps(figures))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--items", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--form", choices=["jsonl", "json", "csv"], default="jsonl")
    options.add_argument("--trail", action="store_true", help="with a browser's trail beside each answer")
    options.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        return child(*chosen.child)
    medians: dict[tuple[str, int], dict[str, float]] = {}
    for n in chosen.items:
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder) / "project"
            project.mkdir()
            in_a_process("make", str(project), str(n), chosen.form, "trail" if chosen.trail else "no trail")
            config = project / "config.yaml"
            rounds: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
            for _ in range(chosen.rounds):
                for which, figures in rounds.items():
                    figures.append(measured(which, config))
        for which, figures in rounds.items():
            medians[which, n] = {key: statistics.median(f[key] for f in figures) for key in figures[0]}
            print(
                f"{n:>9,} items  {which:5}  " + "  ".join(f"{k} {v:,.2f}" for k, v in medians[which, n].items()),
                flush=True,
            )
        a, b = medians["plain", n], medians["ours", n]
        ratios = {name: a[key] / b[key] for name, key in (("time", "total_s"), ("cpu", "cpu_s"), ("memory", "peak_mb"))}
        print(f"{n:>9,} items  plain / ours: " + ", ".join(f"{name} {r:.2f}" for name, r in ratios.items()))
    least, most = min(chosen.items), max(chosen.items)
    if most > least:
        wall, cpu = (medians["ours", most][key] / medians["ours", least][key] for key in ("total_s", "cpu_s"))
        print(f"ours: {most / least:.0f} times the items take {wall:.1f} times the time, {cpu:.1f} times the cpu time")
    peak = medians["ours", most]["peak_mb"]
    print(f"ours: peak memory {peak:,.0f} MB, {'under' if peak < LARGEST_MB else 'NOT under'} {LARGEST_MB:,} MB")
    return None


if __name__ == "__main__":
    main()
