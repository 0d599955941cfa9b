"""docs/troubleshooting.md as the site's own page: every error code, what it means, and what helps."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

HERE = Path(__file__).resolve().parent
# In a checkout the page is the top folder's; the wheel carries it inside this package.
PLACES = (HERE / "docs" / "troubleshooting.md", HERE.parent / "docs" / "troubleshooting.md")
CODE = re.compile(r"`([a-z_]+)`")
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Row:
    """One row of a table; `anchor` is the error code that it is about, or empty."""

    anchor: str
    cells: list[SafeString]


@dataclass(frozen=True)
class Block:
    """A paragraph, a list, lines of code or a table: one of its fields has something."""

    text: SafeString | None = None
    points: list[SafeString] = field(default_factory=list)
    code: str = ""
    head: list[SafeString] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """What stands below one heading of `level` 1 to 3; `anchor` is the error code where the heading is one."""

    level: int
    title: SafeString
    anchor: str
    blocks: list[Block]


@functools.cache
def entries() -> tuple[Entry, ...]:
    """The page; empty where an installation has lost the file, which is no reason to fail a run's page."""
    file = next((file for file in PLACES if file.is_file()), None)
    return tuple(parsed(file.read_text(encoding="utf-8"))) if file else ()


@functools.cache
def codes() -> frozenset[str]:
    """The error codes that the page has an anchor for."""
    rows = [row for entry in entries() for block in entry.blocks for row in block.rows]
    return frozenset(anchor for anchor in [*(e.anchor for e in entries()), *(row.anchor for row in rows)] if anchor)


def parsed(text: str) -> Iterator[Entry]:
    """The entries of a page in the Markdown that our docs keep to: headings, paragraphs, `*` lists, code, tables."""
    seen: set[str] = set()
    headings = set(re.findall(r"^#+ `([a-z_]+)`$", text, re.MULTILINE))
    for part in re.split(r"^(?=#{1,3} )", text, flags=re.MULTILINE):
        heading, _, rest = part.partition("\n")
        marks, _, title = heading.partition(" ")
        if marks:
            yield Entry(len(marks), inline(title), anchor_of(title, seen), list(blocks_of(rest, headings)))


def anchor_of(title: str, seen: set[str]) -> str:
    """The code that a heading is, else its words; a second heading of one name gets none of its own."""
    code = CODE.fullmatch(title)
    anchor = code[1] if code else slugify(title)
    if anchor in seen:
        return ""
    seen.add(anchor)
    return anchor


def blocks_of(text: str, headings: Set[str]) -> Iterator[Block]:
    for piece in re.split(r"\n{2,}", text.strip("\n")):
        lines = piece.split("\n")
        if not piece.strip():
            continue
        if lines[0].startswith("|"):
            yield table_of(lines, headings)
        elif lines[0].startswith("* "):
            yield Block(points=[inline(line[2:]) for line in lines])
        elif lines[0].startswith("    "):
            yield Block(code="\n".join(line[4:] for line in lines))
        else:
            yield Block(text=inline(" ".join(lines)))


def table_of(lines: Iterable[str], headings: Set[str]) -> Block:
    """A table whose second line is the ruler; a code that has a heading too is found there."""
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return Block(head=[inline(cell) for cell in head], rows=[row_of(cells, headings) for cells in rows])


def row_of(cells: list[str], headings: Set[str]) -> Row:
    code = CODE.fullmatch(cells[0])
    return Row(code[1] if code and code[1] not in headings else "", [inline(cell) for cell in cells])


def inline(text: str) -> SafeString:
    """Code between backticks; of a link, its words: the other pages of docs/ are not part of the site."""
    pieces = LINK.sub(r"\1", text).split("`")
    html = (f"<code>{escape(piece)}</code>" if at % 2 else escape(piece) for at, piece in enumerate(pieces))
    return mark_safe("".join(html))  # noqa: S308 - each piece is escaped
