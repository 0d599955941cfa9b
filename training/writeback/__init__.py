"""Write-back: predictions become prelabels by the project's gates, reach annotators as a file, and come down again."""

from training.writeback.gates import publish, retract, take_down_rejected
from training.writeback.prelabels import export, lines
from training.writeback.retention import prune

__all__ = ["export", "lines", "prune", "publish", "retract", "take_down_rejected"]
