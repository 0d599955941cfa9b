"""The training loop: length-grouped batches, warm-up, clipping; it reports, can be stopped, keeps the best epoch."""

import math
import random
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ...failures import WorkError
from ...work import Work
from .answers import Answers, agreement
from .arithmetic import Arithmetic
from .examples import Examples, only_known
from .texts import as_tensors, budgeted_batches, grouped_batches

POINTS = 50  # of the loss curve
WARM_UP = 0.1
CLIP = 1.0
FULL_RATE = 1e-4  # for 16 texts a step, and in proportion
LORA_RATE = 1e-3


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train: derived from the parameters and the number of texts."""

    batch_size: int
    epochs: int
    learning_rate: float
    steps: int
    weight_decay: float
    keep_best: bool


def plan(n_texts: int, params: Mapping[str, Any]) -> Plan:
    """What is 0 in the parameters is chosen here; few texts get small batches and more epochs, up to `min_steps`."""
    size = params["batch_size"] or _batch_size(n_texts)
    per_epoch = math.ceil(n_texts / size)
    epochs = max(params["epochs"], min(MOST_EPOCHS, math.ceil(params["min_steps"] / per_epoch)))
    rate = params["learning_rate"] or (LORA_RATE if params["method"] == "lora" else FULL_RATE * max(1.0, size / 16))
    return Plan(size, epochs, rate, epochs * per_epoch, params["weight_decay"], params["keep_best"])


MOST_EPOCHS = 20


def _batch_size(n_texts: int) -> int:
    return 8 if n_texts < 200 else 16 if n_texts < 800 else 32


def rate_at(step: int, steps: int) -> float:
    """The share of the learning rate at a step: up for a tenth of the way, then straight down to nothing."""
    warm = max(1, int(WARM_UP * steps))
    return (step + 1) / warm if step < warm else max(0.0, (steps - step) / max(1, steps - warm))


class Fit:
    """One schema's training. `run()` leaves the model fitted, in the state of the best epoch where there is a val."""

    def __init__(
        self,
        work: Work,
        model: Any,
        answers: Answers,
        arithmetic: Arithmetic,
        train: Examples,
        val: Examples,
        plan: Plan,
        pad_id: int,
    ) -> None:
        import torch

        self.work = work
        self.model = model
        self.answers = answers
        self.arithmetic = arithmetic
        self.train = train
        self.val = val
        self.plan = plan
        self.pad_id = pad_id
        self.history: List[Dict[str, Any]] = []  # metrics of val, epoch by epoch
        self.step = 0
        self._prefix = "" if len(work.schemas) == 1 else answers.name + " "
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._weights, lr=plan.learning_rate, weight_decay=plan.weight_decay, fused=True
        )
        self._scaler = arithmetic.scaler()
        self._losses = []  # type: List[Any]  # since the last point of the curve
        self._best = (math.inf, [])  # type: Tuple[float, List[Any]]

    def run(self) -> None:
        rng = random.Random(self.work.seed)  # noqa: S311 - to be repeatable, not secret
        lengths = self.train.tokens.lengths()
        for _ in range(self.plan.epochs):
            self.model.train()
            for batch in grouped_batches(lengths, self.plan.batch_size, rng):
                self._take_step(batch)
            self._report_loss()
            self._look_at_val()
        self._go_back_to_best()

    def _take_step(self, batch: List[int]) -> None:
        import torch

        for group in self._optimizer.param_groups:
            group["lr"] = self.plan.learning_rate * rate_at(self.step, self.plan.steps)
        loss = self._loss(batch)
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        torch.nn.utils.clip_grad_norm_(self._weights, CLIP)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        self._after_step(loss)

    def _loss(self, batch: List[int]) -> Any:
        wanted = self.answers.tensor([self.train.codes[index] for index in batch])
        logits = self._logits([self.train.tokens[index] for index in batch])
        return self.answers.loss(logits, wanted.to(self.arithmetic.device), weighted=True)

    def _logits(self, rows: Sequence[Sequence[int]]) -> Any:
        ids, mask = as_tensors(rows, self.pad_id, self.arithmetic.device)
        with self.arithmetic.autocast():
            return self.model(input_ids=ids, attention_mask=mask).logits.float()

    def _after_step(self, loss: Any) -> None:
        self.step += 1
        self._losses.append(loss.detach())
        self.work.progress("fit", self.step, self.plan.steps)
        if self.step % max(1, self.plan.steps // POINTS) == 0:
            self._report_loss()

    def _report_loss(self) -> None:
        """A point of the loss curve: the mean since the last one. A loss that is no number ends the run."""
        import torch

        if not self._losses:
            return
        loss = torch.stack(self._losses).mean().item()
        self._losses = []
        self.work.metric("train", self._prefix + "loss", loss, self.step)
        if not math.isfinite(loss):
            message = "The loss of '%s' at step %d of %d is not a number"
            raise WorkError(
                message % (self.answers.name, self.step, self.plan.steps),
                hint="Lower the parameter learning_rate (it was %g)" % self.plan.learning_rate,
                code="diverged",
            )

    # The val split.

    def val_logits(self) -> Tuple[Any, Any, List[int]]:
        """(logits, targets, codes) of the val texts that can be scored, on the CPU, in the order of the codes."""
        import torch

        places, codes = only_known(self.val, self.answers)
        logits = torch.empty((len(places), len(self.answers.labels)))
        rows = [self.val.tokens[place] for place in places]
        self.model.eval()
        with torch.inference_mode():
            for batch in budgeted_batches([len(row) for row in rows], self.arithmetic.tokens, 512):
                self.work.check()
                logits[batch] = self._logits([rows[index] for index in batch]).cpu()
        return logits, self.answers.tensor(codes), codes

    def _look_at_val(self) -> None:
        logits, wanted, codes = self.val_logits()
        if not codes:
            return
        loss = float(self.answers.loss(logits, wanted))
        found = dict(agreement(self.answers.chosen(logits), self.answers.wanted(codes)), loss=loss)
        for name, value in sorted(found.items()):
            self.work.metric("val", self._prefix + name, value, self.step)
        self.history.append(found)
        self._keep_if_best(loss)

    def _keep_if_best(self, loss: float) -> None:
        if self.plan.keep_best and loss < self._best[0]:
            self._best = (loss, [weight.detach().to("cpu", copy=True) for weight in self._weights])

    def _go_back_to_best(self) -> None:
        import torch

        with torch.no_grad():
            for weight, best in zip(self._weights, self._best[1]):
                weight.copy_(best)
        self._best = (math.inf, [])
