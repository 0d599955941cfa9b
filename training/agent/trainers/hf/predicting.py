"""Predictions of any number of texts: sorted within windows, written in the order of the rows, in flat memory."""

from typing import Any, Dict, Iterable, List

from ...work import Work
from .answers import Answers
from .arithmetic import Arithmetic
from .texts import Encoder, as_tensors, budgeted_batches, windows

WINDOW = 8192  # rows that are held and sorted at once
LARGEST_BATCH = 512  # texts
MOST_SCORES = 20  # of a prediction with more labels, the most probable are kept


class Predictor:
    """A fitted model that answers for texts."""

    def __init__(self, work: Work, model: Any, answers: Answers, arithmetic: Arithmetic, encode: Encoder) -> None:
        self.work = work
        self.model = model
        self.answers = answers
        self.arithmetic = arithmetic
        self.encode = encode

    def write(self, split: str) -> int:
        """Predict every row of a split and write it down; returns how many there were."""
        total = self.work.count(split)
        done = 0
        for rows in windows(self.work.rows(split), WINDOW):
            self._write_window(rows, self.probabilities([row["text"] for row in rows], done, total), split)
            done += len(rows)
        return done

    def probabilities(self, texts: List[str], done: int = 0, total: int = 0) -> List[List[float]]:
        """One list for each text, in the order of `labels`; rounded to six digits, as they are written."""
        import torch

        ids = self.encode(texts)
        found = torch.empty((len(texts), len(self.answers.labels)))
        with torch.inference_mode():
            for batch in budgeted_batches([len(row) for row in ids], self.arithmetic.tokens, LARGEST_BATCH):
                found[batch] = self._of([ids[index] for index in batch])
                done += len(batch)
                self.work.progress("predict", done, total or None)
        rows = found.tolist()  # type: List[List[float]]
        return [[round(value, 6) for value in row] for row in rows]

    def _of(self, rows: List[List[int]]) -> Any:
        ids, mask = as_tensors(rows, int(self.encode.tokenizer.pad_token_id), self.arithmetic.device)
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        return self.answers.probabilities(logits.float()).cpu()

    def _write_window(self, rows: Iterable[Dict[str, Any]], found: List[List[float]], split: str) -> None:
        for row, probabilities in zip(rows, found):
            label, confidence = self.answers.answer(probabilities)
            scores = most_probable(self.answers.labels, probabilities)
            self.work.predict(row["instance_id"], self.answers.name, label, confidence, scores, split)


def most_probable(labels: List[str], probabilities: List[float]) -> Dict[str, float]:
    """Label -> probability in the labels' order."""
    kept = range(len(labels))  # type: Iterable[int]
    if len(labels) > MOST_SCORES:
        kept = sorted(sorted(kept, key=lambda place: -probabilities[place])[:MOST_SCORES])
    return {labels[place]: probabilities[place] for place in kept}
