"""One model: how it comes into memory, who uses it, and the hold on it that a run has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from runtime.residency.policy import Resident

log = logging.getLogger("omnibus.residency")

_MEASURED_RUNS = 3
"""Runs after which a model has taken what it takes."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """How a model comes into memory.

    Attributes:
        refs: `id@version` of everything that it is made of.
        load: Loads it; a model with a `close` method is closed when it leaves.
        key: What its size is remembered by: changes with the model's content and the device.
        estimate_nbytes: What it may take, until it was measured.
        device: Whose memory it takes.
    """

    refs: tuple[str, ...]
    load: Callable[[], Any] = field(repr=False)
    key: str = ""
    estimate_nbytes: int = 0
    device: str = "cpu"


class Entry:
    """One source and, while it is in memory, its model; guarded by its owner's lock."""

    def __init__(self, name: str, source: ModelSource, pinned: bool) -> None:
        self.name, self.source, self.pinned = name, source, pinned
        self.loaded = self.retired = False
        self.lingers_until_s = self.loaded_s = 0.0
        self.makes_way_for: Entry | None = None
        """What waits until its runs have ended and it can leave; no new ones begin meanwhile."""
        self.unmeasured_runs = _MEASURED_RUNS
        self.model: Any = None
        self.nbytes = 0
        self.leases = self.last_used = 0
        self.at_work = 0
        """Leases that were handed out, and its load while that is under way."""

    def retire(self, lingers_until_s: float = 0.0) -> Self:
        """Let it go when its last run has ended, and not before that time."""
        self.retired, self.lingers_until_s = True, lingers_until_s
        return self

    def resident(self) -> Resident:
        """What the policy sees of it."""
        return Resident(
            self.name, self.source.refs, self.source.device, self.nbytes, self.pinned, self.leases, self.last_used
        )


class Lease:
    """A model that stays as long as this is held. Use as a context manager, from any thread.

    Attributes:
        model: What was loaded.
        refs: `id@version` of what it is made of.
    """

    def __init__(self, entry: Entry, release: Callable[[Entry, bool], None]) -> None:
        self._entry, self._release = entry, release
        self._held = True
        self.model = entry.model
        self.refs = entry.source.refs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self, *, ran: bool = True) -> None:
        """Give it up; again is fine.

        Args:
            ran: Whether it was run, so that what a run takes can be measured.
        """
        held, self._held = self._held, False
        if held:
            self.model = None
            self._release(self._entry, ran)


def close_all(models: Iterable[Any]) -> None:
    """Close the models that can be closed."""
    for model in models:
        try:
            if (close := getattr(model, "close", None)) is not None:
                close()
        except Exception:  # of a deployer's own model: what was run has its answer, and the others are closed, too
            log.exception("a model did not close")
