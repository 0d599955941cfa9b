"""After the worker: predictions and scores into the database; after the end: write-back, export, retention."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django import db
from django.utils import timezone

from training import bulk, bundle, intake, itemtexts, runs, scoring, writeback
from training.agent.jobdir import JobDir
from training.errors import TrainingError
from training.models import Prediction, Run
from training.project import Project
from training.states import SUCCESS
from training.supervisor.errand import Abandoned, Check

if TYPE_CHECKING:
    from training.config import ProjectConfig

logger = logging.getLogger("training.supervisor")

WRITING_BACK = "writing back"
NOT_WRITTEN_BACK = "finished, but for the write-back: the log says what went wrong"
TAKEN_BACK = "finished: the prelabels of this run were taken back"
PORTION = 500  # ids that one query names
# Of the mistakes that a run's row keeps, all its schemas together; a text and a label are cut at so many characters.
MOST_MISTAKES = 100
MOST_OF_A_TEXT = 500
MOST_OF_A_LABEL = 2_000


def store(config: ProjectConfig, run: Run, directory: Path, predictions: Path | None, check: Check) -> None:
    """Put what a finished worker left into the database: predictions once, then the scores on held-out items.

    Raises PredictionsUnreadable, ProjectError (a bundle that is damaged), TooLarge, RunIsOver (somebody ended the run
    meanwhile), OSError or Abandoned.
    """
    runs.step(run.id, "storing the predictions")
    runs.record(run.id, phase="evaluating")
    n_stored = 0
    if predictions is not None:
        most_mb = config.model_training.max_predictions_mb
        manifest = bundle.read(directory / "bundle").manifest
        n_stored = intake.take_predictions(run.id, predictions, timezone.now(), most_mb, check, manifest)
    _compare(run, n_stored)
    check()
    scores, mistakes = held_out(run.id, directory / "bundle", check)
    runs.record(run.id, scores=scores, mistakes=mistakes, **main_columns(scores))


def _compare(run: Run, n_stored: int) -> None:
    """Say it where the worker counted other predictions than were stored; what was left out is said besides."""
    said = run.result.get("n_predictions") if isinstance(run.result, dict) else None
    if isinstance(said, int) and not isinstance(said, bool) and said != n_stored:
        runs.step(run.id, f"The worker's result says n_predictions {said}, and {n_stored} are stored", level="warning")


def main_columns(scores: Mapping[str, Any]) -> dict[str, Any]:
    """The main score of the first schema that has one, for the table of runs."""
    main = next((of_schema["main"] for of_schema in scores.values() if of_schema["main"]["value"] is not None), None)
    if main is None:
        return {}
    return {"main_name": main["name"], "main_score": main["value"], "main_baseline": main["baseline"]}


def held_out(run_id: str, directory: Path, check: Check) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Schema -> scores on the items of the test split, by what is in the database; and the mistakes."""

    def predicted(schema: str, ids: Iterable[str]) -> dict[str, Any]:
        check()
        return _predictions(run_id, schema, ids)

    schemas = bundle.read(directory).manifest["schemas"]
    scores: dict[str, Any] = {}
    mistakes: list[tuple[str, scoring.Mistake]] = []
    for judged in scoring.judge_run(
        schemas, lambda: bundle.iter_rows(directory, "train"), lambda: bundle.iter_rows(directory, "test"), predicted
    ):
        scores[judged.schema] = judged.scores
        mistakes += [(judged.schema, mistake) for mistake in judged.mistakes]
    return scores, with_texts(mistakes[:MOST_MISTAKES], bundle.iter_rows(directory, "test"))


def with_texts(
    mistakes: Iterable[tuple[str, scoring.Mistake]], rows: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Mistakes as Run.mistakes has them: {"schema", "item", "truth", "label", "confidence", "distance", "text",
    "whole"}, bounded; `whole` where the text was not cut."""
    mistakes = list(mistakes)
    wanted = {mistake.item for _, mistake in mistakes}
    found = (row for row in rows if row["instance_id"] in wanted)
    texts = {row["instance_id"]: itemtexts.cut(str(row.get("text") or ""), MOST_OF_A_TEXT) for row in found}
    nothing = itemtexts.Text("", True)
    return [
        {
            "schema": schema,
            "item": bulk.cut(mistake.item, MOST_OF_A_TEXT),
            "truth": _bounded(mistake.truth),
            "label": _bounded(mistake.label),
            "confidence": mistake.confidence,
            "distance": mistake.distance,
            "text": texts.get(mistake.item, nothing).text,
            "whole": texts.get(mistake.item, nothing).whole,
        }
        for schema, mistake in mistakes
    ]


def _bounded(label: Any) -> Any:
    """The label; of a list as many members as fit."""
    label = bulk.clean_json(label)
    if isinstance(label, list):
        while len(json.dumps(label)) > MOST_OF_A_LABEL:
            label = label[: len(label) // 2]
    return bulk.cut(label, MOST_OF_A_LABEL) if isinstance(label, str) else label


def _predictions(run_id: str, schema: str, ids: Iterable[str]) -> dict[str, Any]:
    """Item id -> (label, confidence) of those items."""
    rows = Prediction.objects.filter(run_id=run_id, schema=bulk.key(schema, 200))
    named = {bulk.key(instance_id): instance_id for instance_id in ids}
    found = {}
    for portion in bulk.portions(named, PORTION):
        columns = rows.filter(instance_id__in=portion).values_list("instance_id", "label", "confidence")
        found.update({named[key]: rest for key, *rest in columns})
    return found


def settle(config: ProjectConfig, run: Run, check: Check) -> None:
    """Do what follows a run's end, and note that it was done; all of it may be done again.

    A run that was retracted comes here once more, for the file of prelabels. Only errors of the database get out (it
    is tried again) and Abandoned; anything else is a line of the run's log.
    """
    _said(run, "Tidying", lambda: drop_what_travelled(JobDir(config.runs / run.id)))
    if run.status == SUCCESS:
        _said(run, "The index of the texts", lambda: itemtexts.build(config.runs / run.id, check))
        if not _said(run, "Write-back", lambda: write_back(config, run, check)):
            runs.record(run.id, step=NOT_WRITTEN_BACK)
    else:
        runs.forget_predictions(run.id)
    check()
    _said(run, "Retention", lambda: writeback.prune(config, timezone.now(), check=check))
    runs.settled(run, timezone.now())


def drop_what_travelled(jobdir: JobDir) -> None:
    """Remove the bundle's archive (the folder keeps the bundle itself), and uploads that broke off; raises OSError."""
    for file in (jobdir.archive, *jobdir.path.glob(f"{jobdir.predictions.name}.part*")):
        file.unlink(missing_ok=True)


def write_back(config: ProjectConfig, run: Run, check: Check) -> None:
    """Publish what passes the gates, and write the file of prelabels anew."""
    if run.writeback is None:
        runs.step(run.id, WRITING_BACK)
        writeback.publish(run.id, config, Project(config).item_ids, timezone.now(), check=check)
    writeback.export(config, check=check)
    run.refresh_from_db(fields=["writeback", "step"])
    if run.retracted_at:  # as it was at the start: runs.settled sees by it whether a retraction came meanwhile
        if run.step != TAKEN_BACK:
            runs.step(run.id, TAKEN_BACK)
    elif run.step in (WRITING_BACK, NOT_WRITTEN_BACK) and run.writeback:
        n_read, n_written = run.writeback["n_read"], run.writeback["n_written"]
        runs.step(run.id, f"finished: {n_written} of {n_read} predictions became prelabels")


def _said(run: Run, what: str, work: Callable[[], object]) -> bool:
    """Do the work; where it fails, say so in the run's log and go on. Whether it was done."""
    try:
        work()
        return True
    except (Abandoned, db.Error):
        raise
    except TrainingError as error:
        runs.step(run.id, f"{what} failed: {error.message}", level="error")
    except OSError as error:
        runs.step(run.id, f"{what} failed: {error.filename}: {error.strerror}", level="error")
    except Exception as error:
        logger.exception("%s of run %s failed", what, run.id)
        runs.step(run.id, f"{what} failed: {type(error).__name__}: {error}", level="error")
    return False
