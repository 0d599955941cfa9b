"""YAML as it was written: plain data, and for every value its line and its own spelling."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.resolver import Resolver

from training.config.problems import Problem

Key = tuple[str | int, ...]

# Far above any project file; they keep a slip or an attack (nested aliases) from eating the machine.
MAX_BYTES = 4_000_000
MAX_DEPTH = 60
MAX_VALUES = 200_000
MAX_BITS = 4096  # of a whole number; Python refuses to print numbers of more than 4,300 digits

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What YAML allows in no place, not even between quotes.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
TAG = "tag:yaml.org,2002:"
SCALARS = {TAG + name: name for name in ("str", "int", "float", "bool", "null", "timestamp")}

# What YAML reads a scalar as, in words.
SPOKEN = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
}


class Unreadable(Exception):
    """The file cannot be read as one YAML mapping; carries the one problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True)
class Place:
    """Where a value stands, and how it is spelled.

    `line` is that of the key (of the value where it stands in a list). `text` is a scalar's own spelling and `kind`
    what YAML reads it as: str, int, float, bool, null, timestamp; `""` for lists and mappings. `key_kind` is the
    same for the key.
    """

    line: int
    kind: str = ""
    text: str = ""
    key_kind: str = "str"


@dataclass
class Document:
    """A project file as plain data; keys are always text, as they are spelled in the file."""

    data: dict[str, Any]
    places: dict[Key, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, key: Key) -> Place | None:
        return self.places.get(key)

    def line(self, key: Key) -> int | None:
        """The line of a value, or of the nearest thing around it that is in the file."""
        for end in range(len(key), 0, -1):
            place = self.places.get(key[:end])
            if place:
                return place.line
        return None

    def at(self, *key: str | int) -> Any:
        """The value at `key`, or None."""
        value: Any = self.data
        for part in key:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value


def dotted(key: Key) -> str:
    """`("annotation_schemes", 0, "name")` -> `annotation_schemes[0].name`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{short(part)}" if text else short(part)
    return text


def read_document(path: Path) -> Document:
    """Read a project file; raises Unreadable with one sentence where there is nothing to look into."""
    text = _text(path)
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_syntax_problem(error, text)) from None
    except yaml.YAMLError:
        raise Unreadable(Problem("config.yaml", "The file is not YAML: it cannot be read as text")) from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == TAG + "null"):
        raise Unreadable(Problem("config.empty_file", "The file is empty"))
    if not isinstance(root, yaml.MappingNode):
        found = "a list" if isinstance(root, yaml.SequenceNode) else "one text"
        hint = "Each top-level line reads `key: value`"
        raise Unreadable(Problem("config.root", f"The file holds {found}, not keys and values", line=1, hint=hint))
    return _Builder().build(root)


def _text(path: Path) -> str:
    raw = _bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"The file is not UTF-8 text: byte {raw[error.start]:#04x} in line {line}"
        raise Unreadable(Problem("config.encoding", message, line=line, hint="Save it as UTF-8")) from None
    found = CONTROL.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        message = f"The file has the character U+{ord(found[0]):04X}, which YAML does not allow"
        raise Unreadable(Problem("config.yaml", message, line=line, hint="Remove it"))
    return text


def _bytes(path: Path) -> bytes:
    shown = short(str(path), 300)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        hint = "Name the YAML file in it"
        raise Unreadable(Problem("config.folder", f"{shown} is a folder, not a project file", hint=hint)) from None
    except FileNotFoundError:
        raise Unreadable(Problem("config.missing_file", f"{shown} is not there")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(Problem("config.unreadable", f"{shown} cannot be read: {reason}")) from None
    if len(raw) > MAX_BYTES:
        raise Unreadable(Problem("config.too_large", f"The file is larger than {MAX_BYTES // 1_000_000} MB"))
    return raw


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = " ".join(part for part in (error.problem, error.context) if part)
    lines = text.rstrip("\n").split("\n")
    if mark is None or mark.line >= len(lines):
        hint = "A bracket or a quote that is opened above is not closed" if mark else ""
        return Problem("config.yaml", f"The file is not valid YAML: {what}", line=len(lines), hint=hint)
    return Problem(
        "config.yaml", f"The file is not valid YAML: {what}", line=mark.line + 1, hint=_likely(lines[mark.line])
    )


def _likely(line: str) -> str:
    """What is most often wrong with such a line."""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or ":\t" in line:
        return "Use spaces there; YAML takes no tabs"
    return "A text that holds a colon and a space needs quotes around it" if line.count(": ") > 1 else ""


def _compose(text: str) -> yaml.Node | None:
    """The file's one node tree; aliases share nodes."""
    events: Any = yaml.parse(text, Loader=PARSER)
    try:
        return _Composer(events).document()
    finally:
        events.close()


class _Composer:
    """Builds nodes from events, with a limit to the depth, and no node that holds itself."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.anchors: dict[str, yaml.Node] = {}
        self.open: set[str] = set()
        self.resolver = Resolver()

    def document(self) -> yaml.Node | None:
        root: yaml.Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _fault("there is a second document (`---`)", event)
                root = self.node(next(self.events), 0)
        return root

    def node(self, event: Any, depth: int) -> yaml.Node:
        if depth > MAX_DEPTH:
            raise _fault(f"it is nested deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if event.anchor:
            self.open.add(event.anchor)
        node = self.fresh(event, depth)
        if event.anchor:
            self.open.discard(event.anchor)
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: Any) -> yaml.Node:
        if event.anchor in self.open:
            raise _fault(f"*{event.anchor} stands within itself", event)
        if event.anchor not in self.anchors:
            raise _fault(f"*{event.anchor} names no anchor above it", event)
        return self.anchors[event.anchor]

    def fresh(self, event: Any, depth: int) -> yaml.Node:
        start, end = event.start_mark, event.end_mark
        if isinstance(event, yaml.ScalarEvent):
            tag = event.tag
            if tag is None or tag == "!":
                tag = self.resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
            return yaml.ScalarNode(tag, event.value, start, end, style=event.style)
        if isinstance(event, yaml.SequenceStartEvent):
            items = [self.node(e, depth + 1) for e in iter(self._next, None)]
            return yaml.SequenceNode(event.tag or TAG + "seq", items, start)
        pairs = [(self.node(e, depth + 1), self.node(next(self.events), depth + 1)) for e in iter(self._next, None)]
        return yaml.MappingNode(event.tag or TAG + "map", pairs, start)

    def _next(self) -> Any:
        """The next event, or None at the end of the list or mapping."""
        event = next(self.events)
        return None if isinstance(event, yaml.CollectionEndEvent) else event


class _Builder:
    """Turns nodes into plain data and notes the place of each value."""

    def __init__(self) -> None:
        self.places: dict[Key, Place] = {}
        self.problems: list[Problem] = []
        self.scalars = SafeConstructor()
        self.merges = 0

    def build(self, root: yaml.MappingNode) -> Document:
        return Document(self.mapping(root, ()), self.places, self.problems)

    def value(self, node: yaml.Node, key: Key, line: int, key_kind: str = "str") -> Any:
        if len(self.places) >= MAX_VALUES:
            message = f"The file stands for more than {MAX_VALUES:,} values once its aliases are written out"
            raise Unreadable(Problem("config.too_large", message, line=line))
        if isinstance(node, yaml.ScalarNode):
            self.places[key] = Place(line, SCALARS.get(node.tag, "str"), node.value, key_kind)
            return self.scalar(node, key)
        self.places[key] = Place(line, key_kind=key_kind)
        if node.tag not in (TAG + "seq", TAG + "map"):
            self.strange_tag(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*key, i), _line(item)) for i, item in enumerate(node.value)]
        return self.mapping(node, key)

    def mapping(self, node: Any, key: Key) -> dict[str, Any]:
        entries = self.entries(node, key, 0)
        return {
            name: self.value(value, (*key, name), _line(name_node), SCALARS.get(name_node.tag, "str"))
            for name, (name_node, value) in entries.items()
        }

    def entries(self, node: yaml.MappingNode, key: Key, depth: int) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The mapping's own keys over the merged ones, in the order of the file."""
        self.merges += 1
        if self.merges > MAX_VALUES:
            raise Unreadable(Problem("config.too_large", "The file merges (<<) more than can be written out"))
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for name_node, value in node.value:
            if name_node.tag == TAG + "merge":
                merged = {**self.merged(value, key, depth + 1), **merged}
            elif not isinstance(name_node, yaml.ScalarNode):
                self.problem("config.yaml_key", key, "has a list or a mapping as a key", _line(name_node))
            elif name_node.value in own:
                self.duplicate(own[name_node.value][0], name_node, key)
            else:
                own[name_node.value] = (name_node, value)
        return {**merged, **own}

    def merged(self, node: yaml.Node, key: Key, depth: int) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if isinstance(node, yaml.MappingNode) and depth <= MAX_DEPTH:
            return self.entries(node, key, depth)
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        if isinstance(node, yaml.SequenceNode) and depth <= MAX_DEPTH:
            for part in node.value:
                found = {**self.merged(part, key, depth + 1), **found}
            return found
        self.problem("config.yaml_merge", key, "merges (<<) something that is not a mapping", _line(node))
        return found

    def scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        if node.tag == TAG + "str":
            return node.value
        if node.tag not in SCALARS:
            self.strange_tag(node, key)
            return node.value
        try:
            value = self.scalars.construct_object(node)
        except (ValueError, OverflowError, ArithmeticError, LookupError, ConstructorError, AttributeError):
            value = None
        if (value is None and node.tag != TAG + "null") or (isinstance(value, int) and value.bit_length() > MAX_BITS):
            self.problem(
                "config.yaml_value",
                key,
                f"looks like {SPOKEN[SCALARS[node.tag]]} but is not: {short(node.value)}",
                _line(node),
            )
            return node.value
        return value

    def duplicate(self, first: yaml.Node, second: yaml.Node, key: Key) -> None:
        lines = f"in line {_line(first)} and again in line {_line(second)}"
        path = (*key, second.value)
        self.problem("config.duplicate_key", path, f"is there twice: {lines}", _line(second), "Keep one of the two")

    def strange_tag(self, node: yaml.Node, key: Key) -> None:
        tag = str(node.tag).replace(TAG, "!!")
        if tag == "!!value":
            self.problem("config.yaml_tag", key, "is =, which YAML keeps for itself", _line(node), 'Write "="')
        else:
            self.problem("config.yaml_tag", key, f"has the YAML tag {short(tag)}, which is not read", _line(node))

    def problem(self, id: str, key: Key, predicate: str, line: int, hint: str = "") -> None:
        path = dotted(key)
        self.problems.append(Problem(id, f"{path or 'The file'} {predicate}", path, line, hint))


def short(text: str, limit: int = 60) -> str:
    """One line of at most `limit` characters, all of them printable."""
    text = "".join(ch if ch.isprintable() else ascii(ch)[1:-1] for ch in " ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _fault(what: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, what, event.start_mark)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path from the root; links in it are kept, since what is relative is relative to the folder as named."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow the links
