"""What an importer finds wrong with a model: all of it is collected, alike nodes are told together, in one exception."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ModelError, UnsupportedOperator

_SHOWN = 6  # nodes named per problem


class Problem(Exception):
    """Why a node cannot be converted. remedy: what would help. unsupported: the model is sound, but beyond this importer."""

    def __init__(self, reason: str, remedy: str = "", unsupported: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.unsupported = reason, remedy, unsupported


class Problems:
    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[tuple[str, str], list[str]] = {}  # what, why: nodes
        self.unsupported = False

    def add(self, problem: Problem, what: str = "", node: str = "") -> None:
        """what, node: the operator and the name of the node at fault, if it is one."""
        self.unsupported |= problem.unsupported
        why = problem.reason + (f"; {problem.remedy}" if problem.remedy else "")
        self.found.setdefault((what, why), []).append(node)

    def lines(self) -> Iterator[str]:
        for (what, why), nodes in self.found.items():
            if not what:
                yield why
                continue
            names = ", ".join(f"'{n}'" for n in nodes[:_SHOWN])
            names += f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
            yield f"node{'s' if len(nodes) > 1 else ''} {names}: {what}: {why}"

    def throw(self) -> None:
        """Raises if there is anything to raise."""
        lines = list(self.lines())
        if lines:
            kind = UnsupportedOperator if self.unsupported else ModelError
            text = (
                "\n  ".join([f"{self.name}: {len(lines)} problems", *lines]) if len(lines) > 1 else f"{self.name}: {lines[0]}"
            )
            raise kind(text, problems=lines)
