"""Makes the paced trainer known to a site and to a worker of the tests: Python runs this at its start."""

try:
    from training.agent.trainers import TRAINERS, Trainer
except ImportError:  # a process that has no `training` on its path, and needs none
    pass
else:
    TRAINERS["paced"] = Trainer(
        name="paced",
        title="Goes on until the test lets it end",
        module="paced_trainer",
        kinds=("nominal",),
        params={
            "type": "object",
            "properties": {
                "gate": {"type": "string"},
                "deaf": {"type": "boolean"},
                "kilobytes": {"type": "integer"},
                "total": {"type": "integer"},
            },
            "additionalProperties": False,
        },
    )
