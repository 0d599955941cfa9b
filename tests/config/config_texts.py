"""Project files for the tests of the loader: the tutorial's, and small changes of a good one."""

from __future__ import annotations

from pathlib import Path

from training.config.loader import Examination, examine

TUTORIAL = Path(__file__).with_name("tutorial.yaml")

TOP = """\
annotation_task_name: Reviews
task_dir: .
data_files: [data/reviews.json]
item_properties: {id_key: id, text_key: text}
output_annotation_dir: annotation_output
"""
SCHEMES = """\
annotation_schemes:
  - annotation_type: radio
    name: sentiment
    description: Good or bad?
    labels: [positive, negative]
"""
SSH = "type: ssh, host: gpu.example.org"
SLURM = "type: slurm, host: login.example.org, remote_dir: /shared/me"


def place(folder: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    """A project in `folder` with one (empty) data file and this project file."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "reviews.json").write_text("[]")
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def with_training(section: str) -> str:
    """A good project file with this flow text inside of `model_training`."""
    return TOP + SCHEMES + "model_training: {enabled: true, " + section + "}\n"


def with_backend(entry: str, name: str = "there") -> str:
    return with_training(f"backends: {{{name}: {{{entry}}}}}")


def with_labels(labels: str) -> str:
    return TOP + SCHEMES.replace("[positive, negative]", labels)


def look(folder: Path, text: str | bytes) -> Examination:
    return examine(place(folder, text))
