"""What a forked child must not share with its parent: pipes, sockets, locks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Forgets(Protocol):
    def _after_fork(self) -> None:
        ...


_shared: weakref.WeakSet[_Forgets] = weakref.WeakSet()


def forget_in_child(thing: _Forgets) -> None:
    """Calls `thing._after_fork()` first of all in every child that is forked from now on."""
    _shared.add(thing)


def _after_fork() -> None:
    for thing in list(_shared):
        thing._after_fork()


os.register_at_fork(after_in_child=_after_fork)
