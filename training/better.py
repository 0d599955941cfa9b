"""Which of two scores is the better one, and in which words a page says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

from django.utils.translation import gettext as _

# The scores of training.scoring of which less is better; of all others more is.
LOWER_IS_BETTER = frozenset({"mae", "rmse", "hamming_loss", "calibration_error"})
DIGITS = 3  # that a score is written with; of two that are written alike none is the better one


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number, of a size that a float can have."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def goodness(name: str, value: Any) -> float | None:
    """The more the better, whatever the score, by its written digits; None where the value is no finite number."""
    if not is_number(value):
        return None
    written = round(float(value), DIGITS)
    return -written if name in LOWER_IS_BETTER else written


def beside_baseline(name: str, value: Any, baseline: Any) -> str:
    """`better than the baseline`, `worse than ...` or `as good as ...`; empty where one of the two is not known."""
    good, plain = goodness(name, value), goodness(name, baseline)
    if good is None or plain is None:
        return ""
    if good == plain:
        return _("as good as the baseline")
    return _("better than the baseline") if good > plain else _("worse than the baseline")


def best_of(name: str, values: Sequence[Any]) -> set[int]:
    """The places of the best value; empty where fewer than two are known, or all that are known are the same."""
    known = {place: good for place, value in enumerate(values) if (good := goodness(name, value)) is not None}
    best = {place for place, good in known.items() if good == max(known.values())}
    return best if len(best) < len(known) else set()
