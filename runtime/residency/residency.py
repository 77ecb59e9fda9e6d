"""Models in memory by name: one copy for all who ask, made room for, and switched while they are used."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock, RLock
from typing import Any

from bus.errors import ModelNotFoundError, OverloadedError
from runtime.engines.heap import give_back
from runtime.residency.entry import Entry, Lease, ModelSource
from runtime.residency.host import free_nbytes, resident_nbytes
from runtime.residency.ledger import MemoryLedger
from runtime.residency.policy import Resident, Room, make_room

log = logging.getLogger("omnibus.residency")

_RESERVE_NBYTES = 256 << 20
_RETRY_AFTER_S = 1.0


class Residency:
    """Keeps models in memory, each once.

    Args:
        budgets: Bytes for all models of a device, by device; a device that is not named has no budget.
        ledger: Remembers what models take; None: nobody does.
        free: What the host has left; None: unknown.
        resident: What this process takes.
        reserve_nbytes: What is always left to the host: runs need memory, too.
        clock: Seconds, from anywhere.
    """

    def __init__(
        self,
        budgets: Mapping[str, int] | None = None,
        *,
        ledger: MemoryLedger | None = None,
        free: Callable[[], int | None] = free_nbytes,
        resident: Callable[[], int] = resident_nbytes,
        reserve_nbytes: int = _RESERVE_NBYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budgets = dict(budgets or {})
        self._ledger, self._free, self._resident_now, self._reserve = ledger, free, resident, reserve_nbytes
        self._clock = clock
        self._lock = Lock()
        # One at a time: what a load takes is told from the size of the process, and room is made for one after another.
        self._loads = RLock()
        self._current: dict[str, Entry] = {}
        self._all: list[Entry] = []
        self._uses = 0

    def add(self, name: str, source: ModelSource, *, pinned: bool = False) -> None:
        """Declare a model; nothing is loaded.

        Args:
            name: What it is asked for by.
            source: How it is loaded.
            pinned: Whether it is never evicted.
        """
        with self._lock:
            self._current[name] = Entry(name, source, pinned)
            self._all.append(self._current[name])

    def refs(self, name: str) -> tuple[str, ...]:
        """What a model of that name is made of now; `ModelNotFoundError` where nothing of that name was added."""
        with self._lock:
            return self._entry(name).source.refs

    def lease(self, name: str, version: str | None = None) -> Lease:
        """The model, loaded now if it is not there; callers that come meanwhile wait for the same load.

        Args:
            name: What it is asked for by.
            version: `id@version` that it must be made of, such as the one that the input was made for; None: any.

        Raises:
            ModelNotFoundError: Nothing of that name was added.
            OverloadedError: (retryable unless it can never fit) there is no room for it, or it is of another version.
            OmnibusError: What loading it raised.
        """
        with self._lock:
            entry = self._take(self._version(name, version))
        return self._loaded(entry)

    def try_lease(self, name: str, version: str | None = None) -> Lease | None:
        """The model if it is in memory, without waiting for anything.

        Args:
            name: What it is asked for by.
            version: As for `lease`.
        """
        with self._lock:
            entry = self._version(name, version)
            return Lease(self._take(entry), self._release) if entry.loaded else None

    def warm(self, name: str) -> bool:
        """Load a model unless another one would have to leave for it; tells whether it is in memory."""
        with self._loads:
            with self._lock:
                entry = self._entry(name)
                if not entry.loaded and self._room(entry.source)[0].evict:
                    return False
                self._take(entry)
            try:
                self._loaded(entry).release(ran=False)
            except OverloadedError as error:
                log.warning("%s is loaded when it is first used: %s", name, error)
                return False
        return True

    def switch(self, name: str, source: ModelSource, *, linger_s: float = 0.0) -> None:
        """Put another version in a model's place: it is loaded while the old one answers, then all new runs get it.

        The old one leaves when its last run has ended. Where the new one does not load, nothing changes.

        Args:
            name: What it is asked for by.
            source: How the new version is loaded.
            linger_s: How long the old version stays for inputs that were made for it; see `sweep`.

        Raises:
            OverloadedError: (retryable) there is no room for both.
            OmnibusError: What loading it raised.
        """
        with self._lock:
            old = self._entry(name)
            fresh = self._take(Entry(name, source, old.pinned))
            self._all.append(fresh)
        try:
            lease = self._loaded(fresh)
        except BaseException:
            with self._lock:
                self._all.remove(fresh)
            raise
        with self._lock:
            self._current[name] = fresh
            old.retired, old.lingers_until_s = True, self._clock() + linger_s
            gone = self._drop_if_over(old)
        _close_all([gone])
        lease.release(ran=False)
        log.info("%s: %s took the place of %s", name, ", ".join(source.refs), ", ".join(old.source.refs))

    def sweep(self) -> None:
        """Let versions go whose time to linger is over; to be called now and then."""
        with self._lock:
            gone = [model for entry in list(self._all) if (model := self._drop_if_over(entry)) is not None]
        _close_all(gone)

    def residents(self) -> tuple[Resident, ...]:
        """Every model in memory, also one whose last runs are ending."""
        with self._lock:
            return tuple(entry.resident() for entry in self._all if entry.loaded)

    def close(self) -> None:
        """Let every model go that no run uses; the others leave with their last run."""
        with self._lock:
            entries, self._current = list(self._all), {}
            for entry in entries:
                entry.retired, entry.lingers_until_s = True, 0.0
            gone = [model for entry in entries if (model := self._drop_if_over(entry)) is not None]
        _close_all(gone)

    def _entry(self, name: str) -> Entry:
        if name not in self._current:
            raise ModelNotFoundError(f"no model {name!r} was added here; added: {', '.join(self._current) or 'none'}")
        return self._current[name]

    def _version(self, name: str, version: str | None) -> Entry:
        """The entry of that name, or the one that was there before it, whichever is of the version."""
        current = self._entry(name)
        if version is None or version in current.source.refs:
            return current
        for entry in self._all:
            if entry.name == name and entry.loaded and version in entry.source.refs:
                return entry
        raise OverloadedError(
            f"{name} has {', '.join(current.source.refs)} here, not {version}; it may be loading",
            retry_after_s=_RETRY_AFTER_S,
        )

    def _take(self, entry: Entry) -> Entry:
        self._uses += 1
        entry.leases, entry.last_used = entry.leases + 1, self._uses
        return entry

    def _loaded(self, entry: Entry) -> Lease:
        """The lease that was counted already, once its model is there."""
        try:
            with self._loads:
                if not entry.loaded:
                    self._load(entry)
            return Lease(entry, self._release)
        except BaseException:
            self._release(entry, ran=False)
            raise

    def _load(self, entry: Entry) -> None:
        self._evict(entry)
        before = self._resident_now()
        model = entry.source.load()
        give_back()
        with self._lock:
            entry.model, entry.loaded, entry.baseline = model, True, before
            # What earlier processes measured includes runs, which this one has not made yet.
            known = self._ledger.get(entry.source.key) if self._ledger is not None else None
            entry.nbytes = max(self._resident_now() - before, known or 0) or entry.source.estimate_nbytes
            for other in self._all:
                if other is not entry:
                    other.baseline = None  # what it grows by from now on may be this one's
        self._remember(entry)

    def _evict(self, entry: Entry) -> None:
        with self._lock:
            room, leaving = self._room(entry.source)
            if room.missing_nbytes:
                raise self._refused(entry, room.missing_nbytes)
            gone = [self._drop(one) for one in leaving]
        _close_all(gone)
        if gone:
            give_back()
            log.info("%s left for %s", ", ".join(one.name for one in room.evict), entry.name)

    def _room(self, source: ModelSource) -> tuple[Room, Sequence[Entry]]:
        """How room is made for a model, and the entries that leave for it."""
        entries = [one for one in self._all if one.loaded and one.source.device == source.device]
        residents = [one.resident() for one in entries]
        free = self._free() if source.device == "cpu" else None
        left = None if free is None else max(0, free - self._reserve)
        budget = self._budgets.get(source.device)
        room = make_room(self._need(source), residents, budget_nbytes=budget, free_nbytes=left)
        leaving = [
            one for one, seen in zip(entries, residents, strict=True) if any(seen is gone for gone in room.evict)
        ]
        return room, leaving

    def _need(self, source: ModelSource) -> int:
        known = self._ledger.get(source.key) if self._ledger is not None else None
        return source.estimate_nbytes if known is None else known

    def _refused(self, entry: Entry, missing: int) -> OverloadedError:
        device, need = entry.source.device, self._need(entry.source)
        budget = self._budgets.get(device)
        held = [one.resident() for one in self._all if one.loaded and one.source.device == device]
        holders = ", ".join(
            f"{one.name} {one.nbytes / 1e6:.0f} MB ({'pinned' if one.pinned else f'{one.leases} runs'})" for one in held
        )
        limit = "the host's memory" if budget is None else f"the budget of {budget / 1e6:.0f} MB"
        never = budget is not None and need > budget
        return OverloadedError(
            f"no room for {entry.name} on {device}: it takes {need / 1e6:.0f} MB, {missing / 1e6:.0f} MB more than "
            f"{limit} has left; held by {holders or 'nobody'}" + ("; raise OMNIBUS_MODEL_MEMORY" if never else ""),
            retryable=not never,
            retry_after_s=None if never else _RETRY_AFTER_S,
            need_nbytes=need,
            missing_nbytes=missing,
            held_by=[one.name for one in held],
        )

    def _release(self, entry: Entry, ran: bool) -> None:
        with self._lock:
            entry.leases -= 1
            measured = ran and entry.loaded and entry.baseline is not None
            if measured and entry.baseline is not None:
                entry.nbytes = max(entry.nbytes, self._resident_now() - entry.baseline)
                entry.unmeasured_runs -= 1
                entry.baseline = entry.baseline if entry.unmeasured_runs else None
            gone = self._drop_if_over(entry)
        if measured:
            self._remember(entry)
        _close_all([gone])

    def _remember(self, entry: Entry) -> None:
        if self._ledger is not None and entry.source.key:
            self._ledger.put(entry.source.key, entry.nbytes)

    def _drop_if_over(self, entry: Entry) -> Any:
        if not entry.retired or entry.leases or self._clock() < entry.lingers_until_s:
            return None
        if entry in self._all:
            self._all.remove(entry)
        return self._drop(entry)

    def _drop(self, entry: Entry) -> Any:
        model, entry.model, entry.loaded, entry.baseline = entry.model, None, False, None
        return model


def _close_all(models: Iterable[Any]) -> None:
    for model in models:
        try:
            if (close := getattr(model, "close", None)) is not None:
                close()
        except Exception:  # of a deployer's own model: what was run has its answer, and the others are closed, too
            log.exception("a model did not close")
