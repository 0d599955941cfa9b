"""What annotators answered, as a model sees it: labels that occur, targets as tensors, losses, and answers back."""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ...failures import JobUnfit

HEAVIEST = 100.0  # a label that one text in a thousand has would otherwise drown all others


class Answers:
    """One schema's answers. While reading, a target becomes a number (`code`); after `close` only labels that occur
    in training are left, in the scheme's order, and a label is its place in `labels`."""

    problem_type = ""

    def __init__(self, schema: Mapping[str, Any], class_weight: str = "none", threshold: float = 0.5) -> None:
        self.name = schema["name"]
        self.threshold = threshold
        self.labels = []  # type: List[str]
        self._class_weight = class_weight
        self._all = {label: place for place, label in enumerate(schema.get("labels") or [])}
        self._places = {}  # type: Dict[int, int]  # place in the scheme -> place in `labels`
        self._weights = None  # type: Any

    def code(self, target: Any) -> int:
        """A target as a number; JobUnfit where it is none of this kind."""
        raise NotImplementedError

    def close(self, codes: Sequence[int]) -> None:
        """End the reading: these are the codes of the training rows."""
        counts = self._counts(codes)
        names = sorted(self._all, key=lambda label: self._all[label])
        used = [name for name in names if counts.get(self._all[name])]
        self._places = {self._all[name]: place for place, name in enumerate(used)}
        self.labels = used
        self._refuse_sameness(codes)
        if self._class_weight == "balanced":
            self._weights = self._balanced([counts[self._all[name]] for name in used], len(codes))

    def is_known(self, code: int) -> bool:
        """Whether training saw what this code stands for."""
        raise NotImplementedError

    def tensor(self, codes: Sequence[int]) -> Any:
        """Codes as what `loss` takes."""
        raise NotImplementedError

    def loss(self, logits: Any, wanted: Any, weighted: bool = False) -> Any:
        """The mean loss of float32 logits of shape (texts, labels)."""
        raise NotImplementedError

    def probabilities(self, logits: Any) -> Any:
        """(texts, labels), each in [0, 1]."""
        raise NotImplementedError

    def chosen(self, logits: Any) -> Any:
        """(texts, labels) of bool: the labels that the model gives."""
        raise NotImplementedError

    def wanted(self, codes: Sequence[int]) -> Any:
        """(texts, labels) of bool: the labels that annotators gave."""
        raise NotImplementedError

    def answer(self, probabilities: Sequence[float]) -> Tuple[Any, float]:
        """(label in the kind's form, confidence) for one text."""
        raise NotImplementedError

    def _counts(self, codes: Sequence[int]) -> Dict[int, int]:
        raise NotImplementedError

    def _refuse_sameness(self, codes: Sequence[int]) -> None:
        raise NotImplementedError

    def _balanced(self, counts: List[int], n: int) -> Any:
        raise NotImplementedError

    def _place(self, label: Any) -> int:
        """A label's place in the scheme; one that the scheme lacks comes after its own."""
        if not isinstance(label, str):
            message = "The bundle has the target %r for schema '%s', which is no label" % (label, self.name)
            raise JobUnfit(message, code="bad_bundle")
        return self._all.setdefault(label, len(self._all))


class Nominal(Answers):
    """One label of several: softmax. A code is the label's place; confidence is its probability."""

    problem_type = "single_label_classification"

    def code(self, target: Any) -> int:
        return self._place(target)

    def is_known(self, code: int) -> bool:
        return code in self._places

    def tensor(self, codes: Sequence[int]) -> Any:
        import torch

        return torch.tensor([self._places[code] for code in codes], dtype=torch.int64)

    def loss(self, logits: Any, wanted: Any, weighted: bool = False) -> Any:
        from torch.nn.functional import cross_entropy

        weights = self._weights.to(logits.device) if weighted and self._weights is not None else None
        return cross_entropy(logits, wanted, weight=weights)

    def probabilities(self, logits: Any) -> Any:
        return logits.softmax(-1)

    def chosen(self, logits: Any) -> Any:
        from torch.nn.functional import one_hot

        return one_hot(logits.argmax(-1), len(self.labels)).bool()

    def wanted(self, codes: Sequence[int]) -> Any:
        from torch.nn.functional import one_hot

        return one_hot(self.tensor(codes), len(self.labels)).bool()

    def answer(self, probabilities: Sequence[float]) -> Tuple[Any, float]:
        confidence = max(probabilities)
        return self.labels[probabilities.index(confidence)], confidence

    def _counts(self, codes: Sequence[int]) -> Dict[int, int]:
        counts = {}  # type: Dict[int, int]
        for code in codes:
            counts[code] = counts.get(code, 0) + 1
        return counts

    def _refuse_sameness(self, codes: Sequence[int]) -> None:
        if len(self.labels) < 2:
            message = "All %d training items of schema '%s' are labelled '%s'"
            raise JobUnfit(message % (len(codes), self.name, "".join(self.labels)), hint=TWO_CLASSES)

    def _balanced(self, counts: List[int], n: int) -> Any:
        import torch

        return torch.tensor([min(HEAVIEST, n / (len(counts) * count)) for count in counts])


class Multilabel(Answers):
    """Any number of labels: a sigmoid each. A code has one bit for each label of the scheme.

    Confidence is the probability of the very set that is given, the labels taken as independent: the product over all
    labels of p where the label is given and 1 - p where it is not.
    """

    problem_type = "multi_label_classification"

    def code(self, target: Any) -> int:
        if not isinstance(target, list):
            message = "The bundle has the target %r for schema '%s', which is no list" % (target, self.name)
            raise JobUnfit(message, code="bad_bundle")
        code = 0
        for label in target:
            code |= 1 << self._place(label)
        return code

    def is_known(self, code: int) -> bool:
        return True  # a label that training never saw is 0 like any that is not given

    def tensor(self, codes: Sequence[int]) -> Any:
        return self.wanted(codes).float()

    def loss(self, logits: Any, wanted: Any, weighted: bool = False) -> Any:
        from torch.nn.functional import binary_cross_entropy_with_logits

        weights = self._weights.to(logits.device) if weighted and self._weights is not None else None
        return binary_cross_entropy_with_logits(logits, wanted, pos_weight=weights)

    def probabilities(self, logits: Any) -> Any:
        return logits.sigmoid()

    def chosen(self, logits: Any) -> Any:
        return logits.sigmoid() >= self.threshold

    def wanted(self, codes: Sequence[int]) -> Any:
        import torch

        places = list(self._places)
        rows = [[bool(code >> place & 1) for place in places] for code in codes]
        return torch.tensor(rows, dtype=torch.bool).reshape(len(codes), len(places))

    def answer(self, probabilities: Sequence[float]) -> Tuple[Any, float]:
        given = []
        confidence = 1.0
        for label, probability in zip(self.labels, probabilities):
            is_given = probability >= self.threshold
            confidence *= probability if is_given else 1.0 - probability
            if is_given:
                given.append(label)
        return given, confidence

    def _counts(self, codes: Sequence[int]) -> Dict[int, int]:
        return {place: sum(code >> place & 1 for code in codes) for place in self._all.values()}

    def _refuse_sameness(self, codes: Sequence[int]) -> None:
        if len(set(codes)) < 2:
            labels = ", ".join("'%s'" % label for label in self.labels) or "nothing"
            message = "All %d training items of schema '%s' are labelled alike: %s"
            raise JobUnfit(message % (len(codes), self.name, labels), hint=TWO_CLASSES)

    def _balanced(self, counts: List[int], n: int) -> Any:
        import torch

        return torch.tensor([min(HEAVIEST, max(1.0, (n - count) / count)) for count in counts])


TWO_CLASSES = "A classifier learns a difference: annotate items of at least two classes"
KINDS = {"nominal": Nominal, "multilabel": Multilabel}


def agreement(given: Any, wanted: Any) -> Dict[str, Optional[float]]:
    """Accuracy (the whole answer is right) and macro F1 of two (texts, labels) of bool; None where there is no text.

    Macro F1 is over the labels that either side gives.
    """
    if not len(wanted):
        return {"accuracy": None, "macro_f1": None}
    both = (given & wanted).sum(0).double()
    either = given.sum(0).double() + wanted.sum(0).double()
    f1 = 2 * both[either > 0] / either[either > 0]
    return {
        "accuracy": (given == wanted).all(1).double().mean().item(),
        "macro_f1": f1.mean().item() if len(f1) else 1.0,
    }
