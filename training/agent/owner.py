"""What whoever runs an agent wants of the run that goes on: signals and the end of a session say it."""

from typing import Callable


class Owner:
    """Whoever runs an agent; `why` becomes the error of a run that they stop, and `hint` its remedy."""

    why = ""
    hint = "Start the run again"

    def order(self) -> str:
        """`term`, `kill`, or nothing."""
        return ""

    @property
    def takes_no_more(self) -> bool:
        """Whether the agent ends with this run, and asks for no other."""
        return False

    def news(self) -> str:
        """What to tell that person of a wish that was just heard; once, and else nothing."""
        return ""

    def may_hang_up(self, hang_up: Callable[[], None]) -> None:
        """The run gives what ends its own request: for an owner who does not wait for an answer any more."""
