"""One copy of a model for all functions of a process that are made of it, for as long as one of them holds it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock, RLock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

M = TypeVar("M")


class SharedModels(Generic[M]):
    """Loaded models by key, none of which is kept alive here; safe from several threads.

    Keys hold all that tells two models apart: content, threads, device. A model that is shared is never closed by one
    of its holders: it ends when nobody holds it any more.
    """

    def __init__(self) -> None:
        self._models: WeakValueDictionary[Hashable, M] = WeakValueDictionary()
        self._loading: WeakValueDictionary[Hashable, _Turn] = WeakValueDictionary()
        self._lock = Lock()

    def get(self, key: Hashable, load: Callable[[], M]) -> M:
        """The model of that key, loaded now where nobody holds it; callers of one key wait for one load.

        Raises:
            OmnibusError: What loading it raised; the next caller tries again.
        """
        with self._lock:
            turn = self._loading.get(key) or _Turn()
            self._loading[key] = turn
        with turn.lock:
            found = self._models.get(key)
            if found is None:
                found = self._models[key] = load()
            return found


class _Turn:
    """Whoever loads a key; others of the same key wait here."""

    def __init__(self) -> None:
        self.lock = RLock()
