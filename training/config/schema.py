"""THE declaration: every key of a project file that this site reads, its type, default, bounds and sentence."""

from __future__ import annotations

import codecs
import os
import posixpath
import re
import unicodedata
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from training.agent.slurm.options import fault_of_args
from training.config import sbatch_time

# A year; what is meant to be without limit is left out.
MAX_SECONDS = 31_536_000
# 100 TB in MB: above any disk or memory, below what overflows a 64-bit count of bytes.
MAX_MB = 100_000_000


def wrong(id: str, predicate: str, hint: str = "") -> PydanticCustomError:
    """An error of ours: `predicate` goes on where the key's path stops ("is ...", "must ...")."""
    # The text travels in the context because pydantic would read braces in the template.
    return PydanticCustomError("ours", "{predicate}", {"id": id, "predicate": predicate, "hint": hint})


def _whole_as_int(number: float) -> float:
    """3600.0 -> 3600, so that sentences say `3600 seconds`."""
    return int(number) if number == int(number) else number


def _clean(text: str) -> str:
    """A text that can stand on a command line: not empty, one line."""
    if not text.strip():
        raise wrong("empty", "is empty", "Leave the key out, or give it a value")
    if any(unicodedata.category(ch) in ("Cc", "Zl", "Zp") for ch in text):
        raise wrong("control_character", "holds a line break or another control character")
    return text


def _no_option(text: str) -> str:
    """A word that no program takes for one of its options."""
    if text.startswith("-") or any(ch.isspace() for ch in text):
        raise wrong("word", "must be one word that does not start with a dash")
    return text


Number = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_whole_as_int)]
Text = Annotated[str, AfterValidator(_clean)]
Word = Annotated[str, AfterValidator(_clean), AfterValidator(_no_option)]
Seconds = Annotated[Number, Field(gt=0, le=MAX_SECONDS)]
Megabytes = Annotated[int, Field(ge=1, le=MAX_MB)]
Threads = Annotated[int, Field(ge=1, le=4096)]
Share = Annotated[Number, Field(ge=0, le=1_000_000)]


class Closed(BaseModel):
    """A mapping in which every key must be known: a mistyped key never means a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Open(BaseModel):
    """A mapping of Potato's, whose other keys are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


# --- backends ------------------------------------------------------------------------------------------------------


def _gpus(text: str) -> str:
    if text not in ("auto", "none") and not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text, re.ASCII):
        raise wrong("gpus", f"must be auto, none, or numbers of GPUs, not {text!r}", 'E.g. gpus: "1" or gpus: "0,1"')
    return text


def _packages(text: str) -> str:
    if text.startswith("-"):
        raise wrong("package", f"is {text!r}, an option of pip and not a package")
    return text


def _environment(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise wrong("env_name", f"sets {name!r}, which is no name of an environment variable")
        if "\0" in value or "\n" in value:
            raise wrong("env_value", f"sets {name} to a text with a line break")
    return env


def _shared(path: str) -> str:
    """A folder that the compute nodes share; /tmp is each node's own."""
    plain = "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)
    for top in ("/tmp", "/var/tmp"):  # noqa: S108 - these are the folders that are refused
        if plain == top or plain.startswith(top + "/"):
            seen = path if plain == path else f"{path}, that is {plain}"
            hint = "Name a folder on storage that the login node and the compute nodes share"
            raise wrong("remote_dir_tmp", f"is {seen}, and {top} is local to each node", hint)
    return path


def _time(value: Any) -> Any:
    """A plain whole number is minutes, as sbatch reads it."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if value.bit_length() < 64 else "a huge number"
    if isinstance(value, str) and sbatch_time.minutes(value) is None:
        raise wrong("time", f"is {value[:40]!r}, which sbatch does not read", f"Its forms: {sbatch_time.FORMS}")
    return value


def _sbatch_args(words: list[str]) -> list[str]:
    if fault := fault_of_args(words):
        raise wrong("sbatch_args", fault, "Every other option of sbatch may stand there")
    return words


def _memory(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if 0 <= value < 2**63 else "a number out of range"
    if isinstance(value, str) and not re.fullmatch(r"\d{1,15}[KMGTkmgt]?[Bb]?", value, re.ASCII):
        raise wrong("mem", f"is {value[:40]!r}, which sbatch does not read", "E.g. mem: 16G")
    return value


class Backend(Closed):
    """What every backend has."""

    needs: ClassVar[str] = "a backend"

    description: Text | None = Field(None, description="A line about the place, for people.")
    heartbeat_timeout_s: Seconds = Field(
        120, description="Seconds without a word from the agent after which a run fails."
    )


class Reached(Backend):
    """A host that this server reaches by ssh."""

    host: Word = Field(
        description="The host, as `ssh` takes it; aliases of `~/.ssh/config` work.", examples=["gpu.example.org"]
    )
    user: Word | None = Field(
        None, description="The account there (`ssh -l`); the ssh configuration's own if left out."
    )
    port: int | None = Field(
        None, ge=1, le=65535, description="The port (`ssh -p`); the ssh configuration's own if left out."
    )
    identity_file: Text | None = Field(
        None,
        description="The private key (`ssh -i`), a path on this server; the ssh configuration's own if left out.",
        examples=["~/.ssh/id_ed25519"],
    )
    ssh_client: Literal["auto", "openssh", "paramiko"] = Field(
        "auto", description="The program that connects: OpenSSH's `ssh`, or paramiko; `auto` takes `ssh` where it is."
    )
    python: Text = Field(
        "python3",
        description="The Python there, 3.8 or newer. On a SLURM cluster: on the login node, for the agent.",
        examples=["python3.10", "/opt/conda/bin/python3"],
    )
    remote_dir: Text = Field(
        "~/.cache/potato-training", description="The folder there for code, jobs and environments."
    )
    num_threads: Threads | None = Field(
        None, description="Sets OMP_NUM_THREADS, MKL_NUM_THREADS and OPENBLAS_NUM_THREADS for the worker."
    )
    env: Annotated[dict[str, str], AfterValidator(_environment)] = Field(
        default_factory=dict, description="Environment variables of the worker.", examples=[{"HF_HOME": "/data/hf"}]
    )
    max_artifact_mb: Megabytes = Field(
        2048, description="A larger file of the model stays there and is named in the log."
    )
    fetch_artifacts: bool = Field(True, description="Whether the model's files come back.")
    keep_remote: bool = Field(False, description="Whether the job's folder there is kept after the run.")


class SshBackend(Reached):
    """A machine with GPUs, reached by ssh."""

    needs: ClassVar[str] = "an ssh backend"

    type: Literal["ssh"] = Field(description="`ssh`: a machine with GPUs, reached by ssh.")
    packages: list[Annotated[Text, AfterValidator(_packages)]] = Field(
        default_factory=list,
        description="Packages for an environment under `remote_dir`, made once over the host's own packages.",
        examples=[["transformers>=4.46", "peft"]],
    )
    gpus: Annotated[str, AfterValidator(_gpus)] = Field(
        "auto",
        description='`auto` (most free memory), `none` (the CPU), or numbers: `"1"`, `"0,1"`.',
        examples=["1"],
    )
    min_free_gpu_mb: int = Field(
        2000,
        ge=0,
        le=MAX_MB,
        description="Free memory that a GPU must have for a run, in MB; changes nothing for `slurm`.",
    )
    on_disconnect: Literal["keep", "cancel"] = Field(
        "keep", description="What the agent does when the session drops: go on and wait, or stop its worker."
    )


class SlurmBackend(Reached):
    """A cluster behind SLURM, whose login node is reached by ssh."""

    needs: ClassVar[str] = "a slurm backend"

    type: Literal["slurm"] = Field(description="`slurm`: a cluster whose login node is reached by ssh.")
    remote_dir: Annotated[Text, AfterValidator(_shared)] = Field(
        description="The folder there for code and jobs, on storage that the compute nodes share.",
        examples=["/shared/projects/me/potato-training"],
    )
    min_free_gpu_mb: int | None = Field(
        None, ge=0, le=MAX_MB, description="Taken and without effect: a SLURM job gets its GPUs from `gres`."
    )
    on_disconnect: Literal["keep", "cancel"] = Field(
        "cancel", description="What the agent does when the session drops: go on, or cancel its SLURM job."
    )
    job_python: Text = Field(
        "python",
        description="The Python of the compute nodes, for the worker; it has the trainer's packages.",
        examples=["python3.10", "/shared/envs/train/bin/python"],
    )
    partition: Word | None = Field(None, description="sbatch `--partition`.")
    account: Word | None = Field(None, description="sbatch `--account`.")
    qos: Word | None = Field(None, description="sbatch `--qos`.")
    gres: Word | None = Field(None, description="sbatch `--gres`; without it a job gets no GPU.", examples=["gpu:1"])
    constraint: Word | None = Field(None, description="sbatch `--constraint`.")
    nodelist: Word | None = Field(None, description="sbatch `--nodelist`.", examples=["node01,node02"])
    exclude: Word | None = Field(None, description="sbatch `--exclude`.", examples=["node01,node02"])
    reservation: Word | None = Field(None, description="sbatch `--reservation`.")
    cpus_per_task: Threads | None = Field(None, description="sbatch `--cpus-per-task`.")
    mem: Annotated[
        str | None,
        BeforeValidator(_memory),
        WithJsonSchema(
            {"anyOf": [{"type": "string", "pattern": r"^\d+[KMGTkmgt]?[Bb]?$"}, {"type": "integer", "minimum": 0}]}
        ),
    ] = Field(None, description="sbatch `--mem`; a number alone is MB.", examples=["16G"])
    time: Annotated[
        str | None,
        BeforeValidator(_time),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}),
    ] = Field(None, description=f"sbatch `--time`: {sbatch_time.FORMS}.", examples=["04:00:00"])
    sbatch_args: Annotated[list[Text], AfterValidator(_sbatch_args)] = Field(
        default_factory=list, description="More options of sbatch, as a list of words.", examples=[["--mail-type=END"]]
    )
    prelude: list[Text] = Field(
        default_factory=list, description="Shell lines before the worker.", examples=[["module load cuda/12.4"]]
    )
    poll_interval_s: Seconds = Field(15, description="Seconds between two looks at the queue (`squeue`).")


class AgentBackend(Backend):
    """A machine whose agent comes and asks for work."""

    needs: ClassVar[str] = "an agent backend"

    type: Literal["agent"] = Field(description="`agent`: a machine whose agent comes and asks for work.")
    queue_timeout_s: Seconds | None = Field(
        None, description="Seconds after which a run that no agent asked for fails; without end if left out."
    )


AnyBackend = Annotated[SshBackend | SlurmBackend | AgentBackend, Field(discriminator="type")]
BACKEND_TYPES: dict[str, type[Backend]] = {"ssh": SshBackend, "slurm": SlurmBackend, "agent": AgentBackend}

MAX_NAME = 64


def _composed(name: str) -> str:
    """One encoding of each letter (NFC), so that a name is found whatever keyboard it was typed on."""
    return unicodedata.normalize("NFC", name)


Name = Annotated[str, AfterValidator(_clean), AfterValidator(_composed)]


def fault_of_name(name: str) -> str:
    """Why a name may not be a backend's (a predicate), or "": it must be safe in every path, URL and command."""
    if name.casefold() == "local":
        return "is declared, but the name local stands for this machine, which always exists"
    if not name:
        return "is a backend without a name"
    if len(name) > MAX_NAME or len(name.encode("utf-8", "replace")) > 200:
        return f"is a name of {len(name)} characters; a backend's name has at most {MAX_NAME}"
    if unicodedata.category(name[0])[0] not in "LN":
        return "is no name for a backend: a name starts with a letter or a digit"
    strange = next((ch for ch in name if ch not in "._-" and unicodedata.category(ch)[0] not in "LMN"), "")
    if strange:
        return f"is no name for a backend: a name has letters, digits, dots, dashes and underscores, not {strange!r}"
    return ""


# --- model_training ------------------------------------------------------------------------------------------------


class Writeback(Closed):
    """Which predictions become prelabels."""

    schemas: list[Text] = Field(
        default_factory=list, description="Schemas whose predictions are shown; none if left out."
    )
    include_unlabeled: bool = Field(False, description="Whether items without an answer are predicted too.")
    min_confidence: Annotated[Number, Field(ge=0, le=1)] = Field(
        0,
        description="Predictions below this confidence (0 to 1) are not shown. Of a label it is its probability, of "
        "a set of labels (multiselect) that of all its decisions together, which is lower; numbers have none and pass.",
    )


class AutoRetrain(Closed):
    """Training again by itself as annotations come in."""

    enabled: bool = Field(False, description="Whether training starts by itself.")
    trainer: Text | None = Field(None, description="The trainer; needed where `enabled`.")
    schemas: list[Text] = Field(default_factory=list, description="The schemas; needed where `enabled`.")
    params: dict[str, Any] = Field(default_factory=dict, description="The trainer's parameters.")
    backend: Name | None = Field(None, description="The backend; `model_training.backend` if left out.")
    update_frequency: int = Field(
        25, ge=1, le=1_000_000_000, description="New annotations after which training starts again."
    )
    min_interval_s: Annotated[Number, Field(ge=0, le=MAX_SECONDS)] = Field(
        600, description="Seconds between two starts, at least."
    )


def _device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name, re.ASCII):
        raise wrong("wrong_value", f"must be auto, cpu, mps, cuda or cuda:N, not {name[:40]!r}")
    return name


SPLITS = ("train", "val", "test")


def _split(name: str) -> str:
    """Only these are predicted and scored; a mistyped one would hold items out for nothing."""
    if name not in SPLITS:
        raise wrong("unknown_key", "is not a split", f"The splits: {', '.join(SPLITS)}")
    return name


def _splits(splits: dict[str, float]) -> dict[str, float]:
    if splits.get("train", 0) <= 0:
        raise wrong("splits_train", "must give train a share above 0", "E.g. {train: 0.7, val: 0.15, test: 0.15}")
    return splits


class ModelTraining(Closed):
    """Everything about training models."""

    enabled: bool = Field(True, description="Whether models can be trained; `false` refuses runs.")
    backend: Name | None = Field(None, description="Where runs go that name no backend; this machine if left out.")
    backends: dict[Name, AnyBackend] = Field(
        default_factory=dict, description="The places where runs can run, by name; `local` always exists."
    )
    max_wall_seconds: Seconds | None = Field(
        None, description="Seconds after which a run is stopped; no limit if left out."
    )
    grace_seconds: Annotated[Number, Field(ge=0, le=3600)] = Field(
        20, description="Seconds between SIGTERM and SIGKILL when a run is stopped."
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto",
        description="The device of local runs: `auto` (CUDA, Apple's mps, CPU), `cpu`, `mps`, `cuda`, `cuda:1`.",
        examples=["cuda:1"],
    )
    num_threads: Threads | None = Field(None, description="Threads of a local worker; all cores if left out.")
    max_ram_mb: Megabytes | None = Field(None, description="Memory of a local worker in MB; no limit if left out.")
    max_predictions_mb: Megabytes = Field(512, description="The largest predictions file that is taken, in MB.")
    retain_runs: int = Field(
        5,
        ge=1,
        le=1_000_000,
        description="How many of the newest successful runs are kept, and apart from them of the others. Older ones "
        "go, rows and folder, unless their prelabels are live.",
    )
    splits: Annotated[dict[Annotated[str, AfterValidator(_split)], Share], AfterValidator(_splits)] = Field(
        default_factory=lambda: {"train": 0.7, "val": 0.15, "test": 0.15},
        description="Shares of the items, in this order; they need not add up to 1.",
        json_schema_extra={"propertyNames": {"enum": list(SPLITS)}, "required": ["train"]},
    )
    split_seed: int = Field(0, ge=-(2**63), le=2**63 - 1, description="Another seed holds other items out.")
    aggregation: Literal["consensus", "majority"] = Field(
        "consensus", description="How annotators who disagree are resolved: Dawid-Skene, or the most votes."
    )
    writeback: Writeback = Field(default_factory=Writeback, description="Which predictions become prelabels.")
    auto_retrain: AutoRetrain = Field(default_factory=AutoRetrain, description="Training again by itself.")


# --- Potato's own keys ---------------------------------------------------------------------------------------------


def _codec(name: str) -> str:
    try:
        codec = codecs.lookup(name)
        usable = getattr(codec, "_is_text_encoding", True)
    except (LookupError, ValueError, UnicodeError):
        usable = False
    if not usable:
        raise wrong("codec", f"is {name[:40]!r}, an encoding that Python does not know", "E.g. utf-8 or latin-1")
    return name


Codec = Annotated[str, AfterValidator(_codec)]
Filled = Annotated[str, StringConstraints(min_length=1)]


class DataFile(Open):
    """One data file; a path alone stands for a mapping with `path`."""

    path: Text = Field(description="The file, relative to `task_dir`.")
    encoding: Codec = Field("utf-8", description="Its encoding, as Python names it.")

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class ItemProperties(Open):
    """Which fields of an item hold what."""

    id_key: Filled = Field(description="The field that holds an item's id.")
    text_key: Filled = Field(description="The field that holds an item's text.")


class PreAnnotation(Open):
    """How Potato shows prelabels."""

    enabled: bool = Field(False, description="Whether Potato shows prelabels.")
    field: Filled = Field("predictions", description="The field of an item that holds its prelabels.")


class Scheme(Open):
    """One annotation scheme; `labels` are the names that Potato stores, as text."""

    annotation_type: Filled = Field(description="Its type, e.g. `radio`, `multiselect`, `likert`, `slider`, `span`.")
    name: Filled = Field(description="Its name, the key under which Potato stores answers.")
    description: str = Field(description="The question that annotators see.")
    labels: list[str] | None = Field(
        None,
        description="The labels: texts, or mappings with `name`.",
        json_schema_extra={"items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]}},
    )
    size: int | None = Field(None, ge=2, le=1000, description="Points of a likert scheme.")
    min_label: str | None = Field(None, description="The words at a likert scheme's first point.")
    max_label: str | None = Field(None, description="The words at a likert scheme's last point.")
    min_value: Number | None = Field(None, description="A slider's least value.")
    max_value: Number | None = Field(None, description="A slider's greatest value.")
    starting_value: Number | None = Field(None, description="Where a slider stands before it is touched.")
    min: Number | None = Field(None, description="A number scheme's least value.")
    max: Number | None = Field(None, description="A number scheme's greatest value.")


class ProjectConfig(Open):
    """A Potato project file. Keys of Potato's that are not declared here are kept as they are."""

    annotation_task_name: Text = Field(description="The study's name.")
    task_dir: Text = Field(".", description="The project's folder, relative to this file.")
    data_files: list[DataFile] = Field(
        default_factory=list,
        description="Files with items (csv, tsv, json, jsonl), relative to `task_dir`.",
    )
    data_directory: Text | None = Field(None, description="A folder whose data files are all read.")
    data_directory_encoding: Codec = Field("utf-8", description="The encoding of the files in `data_directory`.")
    item_properties: ItemProperties = Field(description="Which fields of an item hold its id and its text.")
    output_annotation_dir: Text = Field(description="The folder for annotations, relative to `task_dir`.")
    annotation_schemes: list[Scheme] = Field(min_length=1, description="The annotation schemes.")
    admin_api_key: str | None = Field(
        None, repr=False, description="The key of the API (`X-API-Key`); `${VAR}` takes it from the environment."
    )
    debug: bool = Field(False, description="Potato's debug mode.")
    pre_annotation: PreAnnotation = Field(default_factory=PreAnnotation, description="How Potato shows prelabels.")
    media_directory: Text = Field("media", description="The folder of media files, relative to `task_dir`.")
    model_training: ModelTraining = Field(
        default_factory=ModelTraining, description="Everything about training models."
    )

    _file: Path = PrivateAttr(default_factory=lambda: Path("config.yaml").absolute())

    @property
    def file(self) -> Path:
        """The project file, from the root."""
        return self._file

    @property
    def root(self) -> Path:
        """`task_dir`, from the root; what the file names is relative to it."""
        return Path(os.path.normpath(self._file.parent / self.task_dir))

    @property
    def output(self) -> Path:
        """Where Potato writes annotations."""
        return self.root / self.output_annotation_dir

    @property
    def training(self) -> Path:
        """Where this site keeps its own files."""
        return self.output / "training"

    @property
    def runs(self) -> Path:
        """The folders of the runs."""
        return self.training / "runs"

    def scheme(self, name: str) -> Scheme | None:
        return next((scheme for scheme in self.annotation_schemes if scheme.name == name), None)
