"""Temperature scaling: confidences that mean what they say, where held-out texts show that it helps."""

import math
from typing import Any, Callable, Tuple

FEWEST = 40  # val texts; of fewer a temperature is noise
RANGE = (0.25, 8.0)
STEPS = 40  # of the golden section: 3 ** 40 is finer than floats need

Loss = Callable[[Any, Any], Any]  # (logits, wanted) -> mean loss


def temperature(logits: Any, wanted: Any, loss: Loss) -> float:
    """The temperature that lessens the loss of texts that it was not fitted on; 1.0 where none does.

    Each half of the texts is judged by the temperature of the other half; only if that is better than leaving the
    logits alone, the temperature of all is taken.
    """
    if len(logits) < FEWEST:
        return 1.0
    halves = (slice(0, None, 2), slice(1, None, 2))
    before, after = 0.0, 0.0
    for one, other in (halves, halves[::-1]):
        fitted = _best(logits[one], wanted[one], loss)
        before += float(loss(logits[other], wanted[other]))
        after += float(loss(logits[other] / fitted, wanted[other]))
    return _best(logits, wanted, loss) if after < before else 1.0


def _best(logits: Any, wanted: Any, loss: Loss) -> float:
    """The temperature of least loss, by golden section over its logarithm (the loss is convex in 1 / t)."""
    low, high = math.log(RANGE[0]), math.log(RANGE[1])
    for _ in range(STEPS):
        a, b = _inner(low, high)
        if _at(a, logits, wanted, loss) < _at(b, logits, wanted, loss):
            high = b
        else:
            low = a
    return math.exp((low + high) / 2)


def _inner(low: float, high: float) -> Tuple[float, float]:
    part = 0.381966 * (high - low)
    return low + part, high - part


def _at(log_t: float, logits: Any, wanted: Any, loss: Loss) -> float:
    return float(loss(logits / math.exp(log_t), wanted))


def head_of(model: Any) -> Any:
    """The last linear layer outside the encoder, which makes the logits; None where there is no such layer."""
    import torch

    found = None
    for name, module in model.named_modules():
        is_head = isinstance(module, torch.nn.Linear) and module.out_features == model.config.num_labels
        if is_head and not name.startswith(model.base_model_prefix + "."):
            found = module
    return found


def scale(head: Any, by: float) -> None:
    """Divide the logits by a temperature, in the weights: the saved model is calibrated wherever it is loaded."""
    import torch

    with torch.no_grad():
        head.weight.div_(by)
        if head.bias is not None:
            head.bias.div_(by)
