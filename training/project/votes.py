"""Votes: who said what of which item, a million of them in a few integers each."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator


class Index:
    """Texts numbered in the order in which they were met."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self.number)

    def of(self, text: str) -> int:
        """The number of a text, a new one where it was not met before."""
        return self.number.setdefault(text, len(self.number))

    def __iter__(self) -> Iterator[str]:
        return iter(self.number)

    def text(self, number: int) -> str:
        """The text of a number; the list of texts is made once and grows with them."""
        if len(self._texts) < len(self.number):
            self._texts = list(self.number)
        return self._texts[number]

    def texts(self) -> list[str]:
        return list(self.number)


class Votes:
    """The votes of one schema; three columns, in the order of users' folders and of their files.

    `items` and `users` count in indexes that all schemas of a project share, `votes` in `said`, the schema's own.
    """

    def __init__(self) -> None:
        self.said = Index()
        self.items = array("i")
        self.users = array("i")
        self.votes = array("i")

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.items, self.users, self.votes, strict=True)

    def add(self, item: int, user: int, vote: str) -> None:
        self.items.append(item)
        self.users.append(user)
        self.votes.append(self.said.of(vote))

    def leave_out(self, positions: Collection[int]) -> None:
        """Forget the votes at some positions."""
        if positions:
            for name in ("items", "users", "votes"):
                kept = (value for at, value in enumerate(getattr(self, name)) if at not in positions)
                setattr(self, name, array("i", kept))

    def cut(self, length: int) -> None:
        """Forget what came after the first `length` votes."""
        del self.items[length:], self.users[length:], self.votes[length:]
