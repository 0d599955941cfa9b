"""The gates between a run's predictions and its prelabels, as set-based SQL in short turns; and taking them back.

A prediction is judged once. It becomes `published`, or gets the name of the first gate that keeps it back, in the
order of _gates(). One prelabel at most is live for an item and schema, and the newest run's word stands: where it has
a prediction, published or kept back, an older run's prelabel becomes `superseded`, so that what is on show for a run's
items is of one model. Retracting the newer one does not bring the older one back. Nothing here reads or writes an
annotator's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Count, Max, Min

from training import bulk
from training.errors import BadRequest, UnknownRun
from training.models import UNFIT_CONFIDENCE, UNKNOWN_LABEL, AuditEntry, Prediction, Run, RunItem
from training.project import Project
from training.states import SUCCESS
from training.writeback.forms import not_shown

if TYPE_CHECKING:
    from training.config import ProjectConfig

# A note of the report; a page says it in the reader's language, with what to do.
NOT_ENABLED = (
    "Potato shows the prelabels where the project file that it reads has pre_annotation.enabled: true; this one has not"
)

Ids = Iterable[str] | Callable[[], Iterable[str]]

# What may keep a prediction back; the last one is intake's word, and this room judges none that has it.
GATES = ("train_split", "schema_not_enabled", "rejected", "low_confidence", "missing_item", UNKNOWN_LABEL)

# Outcomes stand in the SQL as they are and not as parameters: the partial indexes are found only so.

# What becomes of each prediction of a stretch of ids is found out without any lock, and noted beside.
JUDGE = """
    INSERT INTO training_judged SELECT id, CASE {cases} ELSE 'published' END FROM training_prediction
    WHERE run_id = %s AND id BETWEEN %s AND %s AND outcome IN ('', 'unfit_confidence')
"""
# Then it is written, with the lock held.
SUPERSEDE = """
    UPDATE training_prediction SET outcome = 'superseded' WHERE id IN (
        SELECT old.id FROM training_judged AS judged CROSS JOIN training_prediction AS new
            CROSS JOIN training_prediction AS old
        WHERE judged.outcome NOT IN ('schema_not_enabled', 'superseded') AND new.id = judged.id
            AND old.schema = new.schema AND old.instance_id = new.instance_id
            AND old.outcome = 'published' AND old.run_id NOT IN ({not_older})
    )
"""
WRITE = """
    UPDATE training_prediction
    SET outcome = (SELECT judged.outcome FROM training_judged AS judged WHERE judged.id = training_prediction.id)
    WHERE id IN (SELECT id FROM training_judged) AND outcome IN ('', 'unfit_confidence')
"""
TAKE_DOWN = """
    UPDATE training_prediction SET outcome = 'train_split'
    WHERE outcome = 'published' AND schema IN ({schemas}) AND instance_id IN (
        SELECT instance_id FROM training_runitem WHERE run_id = %s AND id BETWEEN %s AND %s AND split = 'train'
    )
"""
RETRACT = """
    UPDATE training_prediction SET outcome = 'retracted'
    WHERE run_id = %s AND id BETWEEN %s AND %s AND outcome = 'published'
"""


def publish(
    run_id: str,
    config: ProjectConfig,
    item_ids: Ids,
    now: datetime,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Judge every prediction of a successful run that has not been judged; returns the report, also in Run.writeback.

    `item_ids` are the ids that the project still has. May be done again: a publishing that was killed goes on where
    it was, one that was finished changes nothing. Where the run is retracted meanwhile, it ends retracted. `check` is
    called between two transactions and may raise. Raises UnknownRun, and BadRequest for a run without success.

    The report: `n_read`, `n_written`, `n_retracted`, `n_superseded` (of this run's, by a later one), one
    `n_skipped_<gate>` for each gate, `n_replaced` and `n_taken_down` (older prelabels that made room or that the run
    was fitted on; of this pass alone, where an earlier one was killed), `at`, and `notes`, sentences.
    """
    run = _successful(run_id)
    publication = _Publication(run, config, check)
    publication.take_down()
    # Reading the items of a large project takes long; no gate asks for them where no schema is enabled.
    with _notes_beside():
        if publication.enabled:
            _remember(item_ids() if callable(item_ids) else item_ids)
        publication.judge()
    return _report(publication, config, now)


def _successful(run_id: str) -> Run:
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise UnknownRun(f"There is no run {bulk.cut(run_id, 100)}")
    if run.status != SUCCESS:
        raise BadRequest(f"Run {run_id} is {run.status}; only a successful run's predictions are written back")
    return run


class _Publication:
    """One pass over the predictions of a run."""

    def __init__(self, run: Run, config: ProjectConfig, check: Callable[[], None]) -> None:
        self.run = run
        self.check = check
        self.min_confidence = config.model_training.writeback.min_confidence
        wanted = set(config.model_training.writeback.schemas)
        self.enabled = [bulk.key(schema, 200) for schema in run.schemas if schema in wanted]
        self.later = self._later_runs()
        self.n_replaced = self.n_taken_down = 0

    def take_down(self) -> None:
        """Older prelabels on items that this run was fitted on: it has learnt from an answer given beside them."""
        live = list(
            Prediction.objects.filter(outcome="published").order_by().values_list("schema", flat=True).distinct()
        )
        if not live:
            return
        statement = TAKE_DOWN.format(schemas=", ".join(["%s"] * len(live)))
        turns = bulk.Turns()
        for first, last in _stretches(self.run.pk, RunItem):
            self.check()
            with turns.turn() as cursor:
                cursor.execute(statement, [*live, self.run.pk, first, last])
                self.n_taken_down += cursor.rowcount

    def judge(self) -> None:
        gates = self._gates()
        judge = JUDGE.format(cases=" ".join(f"WHEN {condition} THEN '{outcome}'" for outcome, condition, _ in gates))
        values: list[Any] = [value for _, _, parameters in gates for value in parameters]
        replaces = Prediction.objects.filter(outcome="published").exclude(run=self.run).exists()
        turns = bulk.Turns()
        for first, last in _stretches(self.run.pk, Prediction):
            self.check()
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM training_judged")
                cursor.execute(judge, [*values, self.run.pk, first, last])
            with turns.turn() as cursor:
                self._write(cursor, replaces)

    def _write(self, cursor: CursorWrapper, replaces: bool) -> None:
        """With the run's row held, so that a retraction comes before this turn or after it."""
        held = Run.objects.select_for_update(no_key=True).filter(pk=self.run.pk)
        if held.values_list("retracted_at", flat=True).get():
            cursor.execute("UPDATE training_judged SET outcome = 'retracted' WHERE outcome = 'published'")
        elif replaces:
            not_older = [self.run.pk, *self.later]
            cursor.execute(SUPERSEDE.format(not_older=", ".join(["%s"] * len(not_older))), not_older)
            self.n_replaced += cursor.rowcount
        cursor.execute(WRITE)

    def _gates(self) -> list[tuple[str, str, Sequence[Any]]]:
        """(outcome, condition, its parameters) in the order of POTATO-FORMATS 6.8."""
        names = ", ".join(["%s"] * len(self.enabled))
        gates: list[tuple[str, str, Sequence[Any]]] = [
            ("train_split", _FITTED, ()),
            ("schema_not_enabled", f"schema NOT IN ({names})" if self.enabled else "id IS NOT NULL", self.enabled),
            ("rejected", _REJECTED, ()),
            ("low_confidence", f"outcome = '{UNFIT_CONFIDENCE}' OR confidence < %s", [self.min_confidence]),
        ]
        if self.enabled:
            gates.append(("missing_item", _MISSING, ()))
        if self.later:
            gates.append(("superseded", _LATER.format(runs=", ".join(["%s"] * len(self.later))), self.later))
        return gates

    def _later_runs(self) -> list[str]:
        """Runs that started after this one: what they have published is newer, whoever is written back first."""
        if self.run.started_at is None:
            return []
        return list(Run.objects.filter(started_at__gt=self.run.started_at, status=SUCCESS).values_list("pk", flat=True))


_FITTED = """EXISTS (
    SELECT 1 FROM training_runitem AS item
    WHERE item.split = 'train' AND item.instance_id = training_prediction.instance_id)"""
_REJECTED = """EXISTS (
    SELECT 1 FROM training_verdict AS said WHERE said.verdict = 'reject'
    AND said.schema = training_prediction.schema AND said.instance_id = training_prediction.instance_id)"""
_MISSING = """NOT EXISTS (
    SELECT 1 FROM training_present AS present WHERE present.instance_id = training_prediction.instance_id)"""
_LATER = """EXISTS (
    SELECT 1 FROM training_prediction AS newer WHERE newer.run_id IN ({runs})
    AND newer.outcome NOT IN ('', 'unfit_confidence', 'unknown_label', 'schema_not_enabled', 'retracted')
    AND newer.schema = training_prediction.schema AND newer.instance_id = training_prediction.instance_id)"""


def _stretches(run_id: str, model: type[Prediction] | type[RunItem]) -> Iterator[tuple[int, int]]:
    """The ids in which a run has rows, as stretches from first to last."""
    ends = model.objects.filter(run_id=run_id).aggregate(first=Min("id"), last=Max("id"))
    if ends["first"] is not None:
        for first in range(ends["first"], ends["last"] + 1, bulk.ROWS):
            yield first, first + bulk.ROWS - 1


@contextmanager
def _notes_beside() -> Iterator[None]:
    """Temporary tables of this connection: the ids that the project has, and what was judged of a stretch."""
    tables = {
        "training_present": "instance_id text PRIMARY KEY",
        "training_judged": "id bigint PRIMARY KEY, outcome varchar(20) NOT NULL",
    }
    form = "WITHOUT ROWID" if bulk.is_sqlite() else ""
    with connection.cursor() as cursor:
        for name, columns in tables.items():
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TEMPORARY TABLE {name} ({columns}) {form}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for name in tables:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")


def _remember(ids: Iterable[str]) -> None:
    statement = "INSERT INTO training_present SELECT given.value FROM {given} WHERE true ON CONFLICT DO NOTHING"
    with connection.cursor() as cursor:
        for portion in bulk.portions(map(bulk.key, ids)):
            cursor.execute(statement.format(given=bulk.given()), [bulk.texts(portion)])
        if not bulk.is_sqlite():
            cursor.execute("ANALYZE training_present")  # nobody else does it for a temporary table


def _report(publication: _Publication, config: ProjectConfig, now: datetime) -> dict[str, Any]:
    run = Run.objects.get(pk=publication.run.pk)
    counted = Prediction.objects.filter(run=run).order_by().values_list("outcome").annotate(n=Count("id"))
    outcomes = dict(counted)
    if run.retracted_at:  # what is live still comes down in a moment
        outcomes["retracted"] = outcomes.get("retracted", 0) + outcomes.pop("published", 0)
    report: dict[str, Any] = {
        "n_read": sum(outcomes.values()),
        "n_written": outcomes.get("published", 0),
        "n_retracted": outcomes.get("retracted", 0),
        "n_superseded": outcomes.get("superseded", 0),
        **{f"n_skipped_{gate}": outcomes.get(gate, 0) for gate in GATES},
        "n_replaced": publication.n_replaced,
        "n_taken_down": publication.n_taken_down,
        "at": now.isoformat(),
        "notes": _notes(run, config),
    }
    Run.objects.filter(pk=run.pk).update(writeback=report)
    return report


def _notes(run: Run, config: ProjectConfig) -> list[str]:
    enabled = set(config.model_training.writeback.schemas) & set(run.schemas)
    schemas = Project(config).schemas
    reasons = (not_shown(config, schemas[name]) for name in run.schemas if name in enabled and name in schemas)
    notes = [reason for reason in reasons if reason]
    if enabled and not config.pre_annotation.enabled:
        notes.append(NOT_ENABLED)
    return notes


def retract(run_id: str, by: str, now: datetime, way: str = "") -> int:
    """Take a run's prelabels back; returns how many were live. `way` is as in runs.ask_stop.

    A publishing that goes on at the same time ends retracted too. Older prelabels that this run's replaced do not
    come back. The file of prelabels is written anew by the supervisor, to which the run looks unsettled from here.
    Raises UnknownRun.
    """
    if not Run.objects.filter(pk=run_id).exists():
        raise UnknownRun(f"There is no run {bulk.cut(run_id, 100)}")
    with transaction.atomic():
        still = Run.objects.filter(pk=run_id, retracted_at__isnull=True)
        if still.update(retracted_at=now, retracted_by=bulk.cut(by, 100)):
            AuditEntry.objects.create(run_id=run_id, action="retracted", actor=bulk.cut(by, 100), at=now, detail=way)
    n = 0
    turns = bulk.Turns()
    for first, last in _stretches(run_id, Prediction):
        with turns.turn() as cursor:
            cursor.execute(RETRACT, [run_id, first, last])
            n += cursor.rowcount
    _conclude_retraction(run_id)
    return n


def take_down_rejected(schema: str, instance_id: str) -> int:
    """A reviewer rejected this item's prelabel: take it down, whichever run's it is; returns how many were live.

    The file of prelabels is written anew by the supervisor, as after a retraction. To be called in the transaction
    that stores the verdict: a publishing that comes later meets the verdict at its gate.
    """
    live = Prediction.objects.filter(schema=schema, instance_id=instance_id, outcome="published")
    runs = list(live.values_list("run_id", flat=True))
    n = live.update(outcome="rejected")
    Run.objects.filter(pk__in=runs, status=SUCCESS).update(settled_at=None)
    return n


def _conclude_retraction(run_id: str) -> None:
    n_retracted = Prediction.objects.filter(run_id=run_id, outcome="retracted").count()
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
        columns: dict[str, Any] = {}
        if run.writeback:
            columns["writeback"] = {**run.writeback, "n_written": 0, "n_retracted": n_retracted}
        if run.status == SUCCESS:
            columns["settled_at"] = None
        if columns:
            Run.objects.filter(pk=run_id).update(**columns)
