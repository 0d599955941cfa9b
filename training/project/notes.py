"""What was left out and why: counted by kind, named by example, said in sentences."""

from __future__ import annotations

from dataclasses import dataclass, field

NAMED = 10  # examples that one sentence names


@dataclass
class _Kind:
    n: int = 0
    named: list[str] = field(default_factory=list)


class Notes:
    """A tally of warnings. A kind is a pair of sentences, for one and for several, with `{n}` and `{names}` in them."""

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def add(self, one: str, several: str, name: str = "", n: int = 1) -> None:
        self.count += n
        kind = self._kinds.setdefault((one, several), _Kind())
        kind.n += n
        if name and len(kind.named) < NAMED:
            kind.named.append(name)

    def say(self, sentence: str) -> None:
        """A sentence that stands for itself."""
        self.count += 1
        self._kinds.setdefault((sentence.replace("{", "{{").replace("}", "}}"), ""), _Kind(n=1))

    def merge(self, other: Notes) -> None:
        for (one, several), kind in other._kinds.items():
            mine = self._kinds.setdefault((one, several), _Kind())
            mine.n += kind.n
            mine.named += kind.named[: NAMED - len(mine.named)]
            self.count += kind.n

    def sentences(self) -> list[str]:
        return [_sentence(one, several, kind) for (one, several), kind in self._kinds.items()]

    def sentence(self, one: str, several: str) -> str:
        """What was noted of one kind; empty where nothing was."""
        kind = self._kinds.get((one, several))
        return _sentence(one, several, kind) if kind else ""


def _sentence(one: str, several: str, kind: _Kind) -> str:
    names = ", ".join(kind.named)
    if kind.named and kind.n > len(kind.named):
        names += f" and {kind.n - len(kind.named):,} more"
    return (one if kind.n == 1 or not several else several).format(n=f"{kind.n:,}", names=names)


def shown(text: object, longest: int = 60) -> str:
    """A stranger's text, safe in a sentence: one line, not long, no control characters."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)[: longest + 1])
    return line if len(line) <= longest else line[:longest] + "…"
