"""Write-back: predictions become prelabels by the project's gates, reach annotators as a file, and come down again."""

from training.writeback.gates import publish, retract, take_down_rejected
from training.writeback.prelabels import Prelabel, export, lines, prelabels
from training.writeback.retention import prune

__all__ = ["Prelabel", "export", "lines", "prelabels", "prune", "publish", "retract", "take_down_rejected"]
