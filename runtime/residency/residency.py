"""Models in memory by name: one copy for all who ask, made room for, and switched while they are used."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Condition, Lock, RLock
from typing import Any

from bus.errors import ModelNotFoundError, OmnibusError, OverloadedError
from runtime.engines.heap import give_back
from runtime.residency.entry import Entry, Lease, ModelSource, close_all
from runtime.residency.host import free_nbytes, resident_nbytes
from runtime.residency.ledger import MemoryLedger
from runtime.residency.measuring import Growth
from runtime.residency.policy import Resident
from runtime.residency.rooms import Rooms

log = logging.getLogger("omnibus.residency")

_RESERVE_NBYTES = 256 << 20
_RETRY_AFTER_S = 1.0
_LOOK_EVERY_S = 0.1
"""Whoever waits for room looks again so often: a host's memory tells nobody that it is free."""


class Residency:
    """Keeps models in memory, each once.

    Args:
        budgets: Bytes for all models of a device, by device; a device that is not named has no budget.
        ledger: Remembers what models take; None: nobody does.
        free: What the host has left; None: unknown.
        resident: What this process takes.
        reserve_nbytes: What is always left to the host: runs need memory, too.
        patience_s: How long a load waits for the runs of others to end, while no new ones of theirs begin; 0: it is
            refused at once, and a model that is always busy keeps others out for good.
        tenure_s: How long a model that was loaded is used before it makes way for another one.
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
        patience_s: float = 0.0,
        tenure_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rooms = Rooms(budgets or {}, ledger, free, reserve_nbytes)
        self._growth = Growth(resident)
        self._patience_s, self._tenure_s, self._clock = patience_s, tenure_s, clock
        self._lock = Lock()
        self._moved = Condition(self._lock)
        """A lease was given up, a model has left, or one need not make way any more."""
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
            OverloadedError: (retryable) there is no room for it, or it is of another version.
            ModelTooLargeError: It needs more than its whole budget.
            OmnibusError: What loading it raised.
        """
        with self._lock:
            while (entry := self._version(name, version)).makes_way_for is not None:
                self._moved.wait()
            self._take(entry)
        return self._loaded(entry, self._patience_s)

    def try_lease(self, name: str, version: str | None = None) -> Lease | None:
        """As `lease`, if it is in memory and need not make way for another one, without waiting for anything."""
        with self._lock:
            entry = self._version(name, version)
            ready = entry.loaded and entry.makes_way_for is None
            return self._lease(self._take(entry)) if ready else None

    def warm(self, name: str) -> bool:
        """Load a model, if nobody has to leave for it or it is pinned; tells whether it is there. Raises as `lease`."""
        with self._loads:
            with self._lock:
                entry = self._entry(name)
                _, leaving = self._rooms.room(entry.source, self._all)
                if leaving and not entry.loaded and not entry.pinned:
                    others = ", ".join(one.name for one in leaving)
                    log.warning("%s is loaded when it is first used: %s would have to leave for it", name, others)
                    return False
                self._take(entry)
            try:
                self._loaded(entry).release(ran=False)
            except OverloadedError as error:  # told again to whoever uses it
                log.warning("%s is not loaded before it is used: %s", name, error)
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
            gone = self._drop_if_over(old.retire(self._clock() + linger_s))
        close_all([gone])
        lease.release(ran=False)
        log.info("%s: %s took the place of %s", name, ", ".join(source.refs), ", ".join(old.source.refs))

    def sweep(self) -> None:
        """Let versions go whose time to linger is over; to be called now and then."""
        with self._lock:
            gone = [model for entry in list(self._all) if (model := self._drop_if_over(entry)) is not None]
        close_all(gone)

    def residents(self) -> tuple[Resident, ...]:
        """Every model in memory, also one whose last runs are ending."""
        with self._lock:
            return tuple(entry.resident() for entry in self._all if entry.loaded)

    def remove(self, name: str) -> None:
        """Forget a model, which leaves with its last run; a name that was not added is not an error."""
        with self._lock:
            gone = [self._drop_if_over(self._current.pop(name).retire())] if name in self._current else []
        close_all(gone)

    def close(self) -> None:
        """Let every model go that no run uses; the others leave with their last run."""
        with self._lock:
            self._current = {}
            gone = [self._drop_if_over(entry.retire()) for entry in list(self._all)]
        close_all(gone)

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

    def _loaded(self, entry: Entry, patience_s: float = 0.0) -> Lease:
        """The lease that was counted already, once its model is there."""
        until_s = self._clock() + patience_s
        try:
            while True:
                with self._loads:
                    refusal = None if entry.loaded else self._evict(entry)
                    if refusal is None:
                        if not entry.loaded:
                            self._load(entry)
                        return self._lease(entry)
                self._wait_for_room(entry, refusal, until_s)
        except BaseException:
            self._give_up(entry)
            raise
        finally:
            self._call_off(entry)

    def _load(self, entry: Entry) -> None:
        self._growth.begin(entry)
        try:
            model = entry.source.load()
            give_back()
        finally:
            grown = self._growth.end(entry)
        with self._lock:
            entry.model, entry.loaded, entry.loaded_s = model, True, self._clock()
            # What earlier processes measured includes runs, which this one has not made yet.
            entry.nbytes = max(grown or 0, self._rooms.measured(entry.source) or 0) or entry.source.estimate_nbytes
        if grown is not None:
            self._rooms.remember(entry)

    def _evict(self, entry: Entry) -> OmnibusError | None:
        """Make room for a model; tells why there is none."""
        with self._lock:
            room, leaving = self._rooms.room(entry.source, self._all)
            if room.missing_nbytes:
                return self._rooms.refused(entry, room.missing_nbytes, self._all)
            gone = [self._drop(one) for one in leaving]
        close_all(gone)
        if gone:
            give_back()
            log.info("%s left for %s", ", ".join(one.name for one in room.evict), entry.name)
        return None

    def _wait_for_room(self, entry: Entry, refusal: OmnibusError, until_s: float) -> None:
        """Wait until a run of a model has ended that makes way for this one."""
        with self._lock:
            now_s = self._clock()
            _, leaving = self._rooms.room(entry.source, self._all, running=False)
            if not leaving or now_s >= until_s:
                raise refusal
            for one in leaving:
                if one.makes_way_for is None and now_s >= one.loaded_s + self._tenure_s:
                    one.makes_way_for = entry
            self._moved.wait(min(_LOOK_EVERY_S, until_s - now_s))

    def _call_off(self, entry: Entry) -> None:
        with self._lock:
            for one in self._all:
                if one.makes_way_for is entry:
                    one.makes_way_for = None
            self._moved.notify_all()

    def _lease(self, entry: Entry) -> Lease:
        self._growth.begin(entry)
        return Lease(entry, self._release)

    def _release(self, entry: Entry, ran: bool) -> None:
        measured = self._growth.end_run(entry, ran=ran)
        self._give_up(entry)
        if measured:
            self._rooms.remember(entry)

    def _give_up(self, entry: Entry) -> None:
        """End a claim on a model, whether it was handed out or not."""
        with self._lock:
            entry.leases -= 1
            gone = self._drop_if_over(entry)
            self._moved.notify_all()
        close_all([gone])

    def _drop_if_over(self, entry: Entry) -> Any:
        if not entry.retired or entry.leases or self._clock() < entry.lingers_until_s:
            return None
        if entry in self._all:
            self._all.remove(entry)
        return self._drop(entry)

    def _drop(self, entry: Entry) -> Any:
        model, entry.model, entry.loaded = entry.model, None, False
        entry.makes_way_for = None
        return model
