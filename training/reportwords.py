"""What a backend's report says of a place, in the reader's language; API and terminal have its own words, in English.

What went wrong there stays as it is: such sentences are searched for.
"""

from __future__ import annotations

import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

# The names of its facts.
NAMES = {
    "A job now": gettext_lazy("A job now"),
    "Host": gettext_lazy("Host"),
    "Device": gettext_lazy("Device"),
    "Folder": gettext_lazy("Folder"),
    "Packages": gettext_lazy("Packages"),
    "GPUs": gettext_lazy("GPUs"),
    "Login node": gettext_lazy("Login node"),
    "Python of the job": gettext_lazy("Python of the job"),
    "To issue one": gettext_lazy("To issue one"),
    "issued_at": gettext_lazy("Token issued"),
    "last_seen": gettext_lazy("Last seen"),
    "host": gettext_lazy("Host"),
    "version": gettext_lazy("Version"),
}
TRAINER = re.compile("Trainer (.+)")
# Its headline and the facts themselves; the first that fits, and within it again.
SAID = [
    (re.compile(pattern, re.DOTALL), message)
    for pattern, message in (
        ("this machine, (?P<device>.+)", gettext_lazy("this machine, %(device)s")),
        ("(?P<place>.+), a run gets (?P<device>(?!this one).+)", gettext_lazy("%(place)s, a run gets %(device)s")),
        ("(?P<place>.+), a run gets this one", gettext_lazy("%(place)s, a run gets this one")),
        (
            "(?P<place>.+), a run is submitted with (?P<words>.+)",
            gettext_lazy("%(place)s, a run is submitted with %(words)s"),
        ),
        (
            "(?P<place>.+), a run is submitted without options",
            gettext_lazy("%(place)s, a run is submitted without options"),
        ),
        (r"(?P<card>.+), (?P<n>\d+) % busy", gettext_lazy("%(card)s, %(n)s %% busy")),
        (
            r"(?P<card>.+), (?P<free>\d+) of (?P<total>\d+) MB free",
            gettext_lazy("%(card)s, %(free)s of %(total)s MB free"),
        ),
        (r"ssh to (?P<host>\S+)", gettext_lazy("ssh to %(host)s")),
        (r"slurm at (?P<host>\S+)", gettext_lazy("slurm at %(host)s")),
        ("the agent on (?P<host>.+)", gettext_lazy("the agent on %(host)s")),
        ("an agent that has never asked for work yet", gettext_lazy("an agent that has never asked for work yet")),
        ("an agent", gettext_lazy("an agent")),
        ("no token issued yet", gettext_lazy("no token issued yet")),
        (r"CPU \(1 core\)", gettext_lazy("CPU (1 core)")),
        (r"CPU \((?P<n>\d+) cores\)", gettext_lazy("CPU (%(n)s cores)")),
        ("(?P<when>.+ UTC) [(](?P<age>.+) ago[)]", gettext_lazy("%(when)s (%(age)s ago)")),
        (
            "(?P<when>.+ UTC) [(]before this server's clock was set back[)]",
            gettext_lazy("%(when)s (before this server's clock was set back)"),
        ),
        ("lacks (?P<packages>[^:]+): (?P<install>.+)", gettext_lazy("lacks %(packages)s: %(install)s")),
        ("ready", gettext_lazy("ready")),
        ("not installed", gettext_lazy("not installed")),
        ("none", gettext_lazy("none")),
        ("never", gettext_lazy("never")),
    )
]


def name(english: str) -> str:
    """`Host`, `Trainer hf-text-classification`: what a fact is of; a name that is none of ours stays."""
    trainer = TRAINER.fullmatch(english)
    if trainer:
        return _("Trainer %(name)s") % {"name": trainer[1]}
    return str(NAMES.get(english, english))


def words(english: str) -> str:
    """A headline or a fact; what is known here is said in the reader's language, the rest stays."""
    for pattern, message in SAID:
        found = pattern.fullmatch(english)
        if found:
            return str(message) % {part: words(said) for part, said in found.groupdict().items()}
    return english
