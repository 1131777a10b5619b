"""The concurrent subscription trie: threads subscribe, unsubscribe and match at once, and take snapshots in constant time.

It is the Ctrie of Prokopec, Bronson, Bagwell and Odersky ("Concurrent Tries with Efficient Non-Blocking Snapshots", 2012) with
the words of patterns for keys, and `*` and `#` as branches like any other.

- An *I-node* (indirection) is the only thing that changes: its `main` is replaced by compare-and-swap.
- A *C-node* is the main of an I-node, and never changes: from a word to a *branch*, which has the subscribers of the pattern that
  ends there, and the I-node of the patterns that go on. A change copies one C-node (persistent_map.py) and nothing else.
- A *tomb* is the main of an I-node below which nothing is left. It is the last one: nobody can add below an I-node that its
  parent is about to drop.
- Each I-node has a *generation*, an object without content. A snapshot gives the root another one. A change that meets a branch
  of an older generation copies the I-node first (path copying), so that the snapshot keeps the one that it has.

A replacement must fail if a snapshot was taken meanwhile. So a new main refers to the `previous` one until it is *committed*: the
committer looks at the root's generation, and either clears `previous` or marks it as failed, by compare-and-swap. Each reader who
meets an uncommitted main does this first. The root is replaced by a descriptor in the same way, so that a snapshot fails if the
root's main has changed meanwhile.

Compare-and-swap: Python has no such instruction. `_swap` does it under a lock that is held for one comparison and one
assignment: one of 64, by the address of the object, and never two at once. No thread waits for another that is in the middle of
a change, and reading takes no lock at all. This holds with and without the global interpreter lock.

`match` sees each C-node at another moment: it finds every subscription that was there during the whole match, and none that was
never there during it. A match of a snapshot sees one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TypeAlias

from .persistent_map import PersistentMap

_LOCKS = tuple(Lock() for _ in range(64))


class _Generation:
    """A stretch of time between two snapshots."""

    __slots__ = ()


class _CNode:
    __slots__ = ("branches", "previous")

    def __init__(self, branches: PersistentMap[str, _Branch]) -> None:
        self.branches = branches
        self.previous: _Main | _Failed | None = None


class _Tomb:
    __slots__ = ("previous",)

    def __init__(self) -> None:
        self.previous: _Main | _Failed | None = None


_Main: TypeAlias = _CNode | _Tomb


class _Failed:
    """The `previous` of a main that must not be committed."""

    __slots__ = ("main",)

    def __init__(self, main: _Main) -> None:
        self.main = main


class _INode:
    __slots__ = ("generation", "main")

    def __init__(self, main: _Main, generation: _Generation) -> None:
        self.main = main
        self.generation = generation


class _Branch:
    """Never changes."""

    __slots__ = ("below", "subscribers")

    def __init__(self, subscribers: PersistentMap[int, bool], below: _INode | None) -> None:
        self.subscribers = subscribers
        self.below = below


class _Exchange:
    """Stands in for the root while a snapshot is taken."""

    __slots__ = ("committed", "expected", "new", "old")

    def __init__(self, old: _INode, expected: _Main, new: _INode) -> None:
        self.old = old
        self.expected = expected
        self.new = new
        self.committed = False


# The I-nodes above one, from the root on, each with the word that leads on.
_Path = list[tuple[_INode, str]]
_NO_BRANCHES: PersistentMap[str, _Branch] = PersistentMap()
_NO_SUBSCRIBERS: PersistentMap[int, bool] = PersistentMap()


class ConcurrentTrie:
    """See the module. Any method may be called by any thread at any time."""

    def __init__(self) -> None:
        self._root: _INode | _Exchange = _INode(_CNode(_NO_BRANCHES), _Generation())

    def subscribe(self, pattern: str, subscriber: int) -> None:
        """Add a subscription. Idempotent."""
        words = pattern.split(".")
        while True:
            end = self._descend(words)
            if end is None:
                continue
            node, main, path = end
            rest = words[len(path) + 1 :]
            branch = main.branches.get(words[len(path)]) or _Branch(_NO_SUBSCRIBERS, None)
            if rest:
                branch = _Branch(branch.subscribers, _chain(rest, subscriber, node.generation))
            elif branch.subscribers.get(subscriber):
                return
            else:
                branch = _Branch(branch.subscribers.including(subscriber, True), branch.below)
            if self._replace(node, main, _CNode(main.branches.including(words[len(path)], branch))):
                return

    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        """Remove a subscription, if it is there."""
        words = pattern.split(".")
        left_tomb = False
        while True:
            end = self._descend(words)
            if end is None:
                continue
            node, main, path = end
            branch = main.branches.get(words[-1]) if len(path) == len(words) - 1 else None
            if left_tomb or branch is None or not branch.subscribers.get(subscriber):
                return
            new = _changed(main, words[-1], branch.subscribers.without(subscriber), branch.below, root=not path)
            if self._replace(node, main, new):
                if isinstance(new, _CNode):
                    return
                left_tomb = True  # which takes one more way down, for no other purpose

    def match(self, topic: str) -> set[int]:
        """Return the subscribers of the patterns that match a topic."""
        return _Walk(self).match(topic)

    def snapshot(self) -> Snapshot:
        """Return the subscriptions of this moment. Takes the same time however many there are."""
        while True:
            root = self._read_root()
            main = self._read(root)
            exchange = _Exchange(root, main, _INode(main, _Generation()))
            if _swap(self, "_root", root, exchange):
                self._complete(exchange)
                if exchange.committed:
                    return Snapshot(_INode(main, _Generation()))

    @property
    def empty(self) -> bool:
        """Whether there is no subscription, and nothing left of any."""
        main = self._read(self._read_root())
        return isinstance(main, _CNode) and not len(main.branches)

    # -- the way down -----------------------------------------------------------------------------------------------

    def _descend(self, words: Sequence[str]) -> tuple[_INode, _CNode, _Path] | None:
        """Return the I-node where a pattern ends, or would begin to branch off, with its main and the way there.

        All of them are of the root's generation. None: the way has changed, begin anew.
        """
        node, path = self._read_root(), _Path()
        while True:
            main = self._read(node)
            if isinstance(main, _Tomb):
                self._bury(node, path)
                return None
            word = words[len(path)]
            branch = main.branches.get(word)
            if len(path) == len(words) - 1 or branch is None or branch.below is None:
                return node, main, path
            below = branch.below
            if below.generation is not node.generation:
                below = _INode(self._read(below), node.generation)
                copied = main.branches.including(word, _Branch(branch.subscribers, below))
                if not self._replace(node, main, _CNode(copied)):
                    return None
            path.append((node, word))
            node = below

    def _bury(self, node: _INode, path: _Path) -> None:
        """Take an I-node with a tomb out of its parent; and the parent out of its own, if nothing else was there."""
        while path:
            parent, word = path.pop()
            main = self._read(parent)
            if isinstance(main, _CNode):
                branch = main.branches.get(word)
                if branch is None or branch.below is not node:
                    return  # another thread has done it
                new = _changed(main, word, branch.subscribers, None, root=not path)
                # After a failure the next one who comes by finds the tomb again.
                if not self._replace(parent, main, new) or isinstance(new, _CNode):
                    return
            node = parent

    # -- the replacement of a main, unless a snapshot was taken meanwhile --------------------------------------------------

    def _replace(self, node: _INode, old: _Main, new: _Main) -> bool:
        new.previous = old
        if not _swap(node, "main", old, new):
            return False
        self._commit(node, new)
        return new.previous is None

    def _read(self, node: _INode) -> _Main:
        """Return the committed main of an I-node."""
        main = node.main
        return main if main.previous is None else self._commit(node, main)

    def _commit(self, node: _INode, main: _Main) -> _Main:
        while True:
            previous = main.previous
            if previous is None:
                return main
            if isinstance(previous, _Failed):
                if _swap(node, "main", main, previous.main):
                    return previous.main
                main = node.main
            elif self._read_root(abort=True).generation is node.generation:
                _swap(main, "previous", previous, None)
            else:
                _swap(main, "previous", previous, _Failed(previous))

    # -- the replacement of the root, unless its main has changed meanwhile ----------------------------------------------

    def _read_root(self, *, abort: bool = False) -> _INode:
        root = self._root
        return root if isinstance(root, _INode) else self._complete(root, abort=abort)

    def _complete(self, exchange: _Exchange, *, abort: bool = False) -> _INode:
        """Bring a snapshot to its end, or back to its beginning: `abort` is of those whose commit it waits for itself."""
        while True:
            root = self._root
            if isinstance(root, _INode):
                return root
            if abort or self._read(root.old) is not root.expected:
                if _swap(self, "_root", root, root.old):
                    return root.old
            else:
                if _swap(self, "_root", root, root.new):
                    root.committed = True  # whose snapshot it is may miss that, and takes another one: no harm
                    return root.new


class Snapshot:
    """The subscriptions of one moment."""

    def __init__(self, root: _INode) -> None:
        self._trie = ConcurrentTrie()
        self._trie._root = root

    def match(self, topic: str) -> set[int]:
        """Return the subscribers of the patterns that matched a topic at that moment."""
        return self._trie.match(topic)


class _Walk:
    """One match: the branches that its words lead to, and those behind a `#`, which any number of words leads to."""

    __slots__ = ("_behind_hash", "_found", "_trie", "_waiting")

    def __init__(self, trie: ConcurrentTrie) -> None:
        self._trie = trie
        self._found: set[int] = set()
        self._behind_hash: set[_INode] = set()
        self._waiting: list[PersistentMap[str, _Branch]] = []

    def match(self, topic: str) -> set[int]:
        nodes: list[PersistentMap[str, _Branch]] = []
        self._arrive(self._trie._read_root(), nodes)
        for word in topic.split("."):
            after: list[PersistentMap[str, _Branch]] = []
            ended: list[_Branch] = []
            waiting = list(self._waiting)
            for branches in nodes:
                for branch in (branches.get(word), branches.get("*")):
                    if branch is not None:
                        ended.append(branch)
                        if branch.below is not None:
                            self._arrive(branch.below, after)
            nodes = after + waiting
        for branch in ended:
            branch.subscribers.add_keys_to(self._found)
        return self._found

    def _arrive(self, node: _INode, nodes: list[PersistentMap[str, _Branch]]) -> None:
        main = self._trie._read(node)
        if isinstance(main, _Tomb):
            return
        nodes.append(main.branches)
        branch = main.branches.get("#")
        if branch is not None:
            branch.subscribers.add_keys_to(self._found)
            if branch.below is not None and branch.below not in self._behind_hash:
                self._behind_hash.add(branch.below)
                before = len(nodes)
                self._arrive(branch.below, nodes)
                self._waiting += nodes[before:]


def _changed(main: _CNode, word: str, subscribers: PersistentMap[int, bool], below: _INode | None, *, root: bool) -> _Main:
    """Return the main that has these subscribers and this I-node for a word: a tomb if nothing is left, but for the root."""
    if len(subscribers) or below is not None:
        return _CNode(main.branches.including(word, _Branch(subscribers, below)))
    branches = main.branches.without(word)
    return _CNode(branches) if len(branches) or root else _Tomb()


def _chain(words: Sequence[str], subscriber: int, generation: _Generation) -> _INode:
    """Return the I-node below which a pattern goes on with these words."""
    below = None
    subscribers = _NO_SUBSCRIBERS.including(subscriber, True)
    for word in reversed(words):
        below = _INode(_CNode(_NO_BRANCHES.including(word, _Branch(subscribers, below))), generation)
        subscribers = _NO_SUBSCRIBERS
    assert below is not None
    return below


def _swap(cell: object, name: str, expected: object, new: object) -> bool:
    """Replace a member by another if it is the expected one, as one step; return whether it was."""
    with _LOCKS[id(cell) >> 4 & 63]:
        if getattr(cell, name) is not expected:
            return False
        setattr(cell, name, new)
        return True
