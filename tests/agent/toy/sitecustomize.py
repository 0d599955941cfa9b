"""Makes the toy trainer known to a worker of the tests: Python runs this at its start, from PYTHONPATH."""

from training.agent.trainers import TRAINERS, Trainer

TRAINERS["toy"] = Trainer(
    name="toy",
    title="Does what the test asks for",
    module="toy_trainer",
    kinds=("nominal",),
    params={"type": "object", "properties": {"do": {"type": "string", "default": "finish"}}},
)
TRAINERS["needy"] = Trainer(
    name="needy",
    title="Needs what is nowhere",
    module="toy_trainer",
    kinds=("nominal",),
    packages={"no_such_package": "no-such-package"},
    install="pip install no-such-package",
)
