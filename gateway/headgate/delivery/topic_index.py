"""Topics by their words: to find, among those that are remembered, exactly the ones that a pattern matches. No I/O."""

from __future__ import annotations

import sys
from typing import Any

# Words are never empty, so this key cannot be one: it holds the whole topic that ends at a node.
_END = ""


class TopicIndex:
    """A set of topics. Finding costs what the pattern has in common with them, not their number."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def add(self, topic: str) -> None:
        """Add a topic. Idempotent."""
        node = self._root
        for word in topic.split("."):
            node = node.setdefault(word, {})
        node[_END] = topic

    def discard(self, topic: str) -> None:
        """Remove a topic and what only it needed. Idempotent."""
        words = topic.split(".")
        path = [self._root]
        for word in words:
            child = path[-1].get(word)
            if child is None:
                return
            path.append(child)
        path[-1].pop(_END, None)
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            if parent[word]:
                return
            del parent[word]

    def clear(self) -> None:
        """Remove everything."""
        self._root.clear()

    def matching(self, pattern: str, max_steps: int = sys.maxsize) -> list[str] | None:
        """Return the topics that a valid pattern matches, each once; None if finding them takes more than `max_steps` steps."""
        tokens = pattern.split(".")
        found: list[str] = []
        # Several `#` can lead to a node in several ways; each (node, tokens used up) is looked at once.
        seen: set[tuple[int, int]] = set()
        stack: list[tuple[dict[str, Any], int]] = [(self._root, 0)]
        while stack:
            node, used = stack.pop()
            if (id(node), used) in seen:
                continue
            seen.add((id(node), used))
            if len(seen) + len(stack) > max_steps:
                return None
            if used == len(tokens):
                if _END in node:
                    found.append(node[_END])
                continue
            token = tokens[used]
            if token == "#":
                stack.append((node, used + 1))
                stack.extend((child, used) for word, child in node.items() if word != _END)
            elif token == "*":
                stack.extend((child, used + 1) for word, child in node.items() if word != _END)
            elif token in node:
                stack.append((node[token], used + 1))
        return found
