"""What there is room for: the policy, with the budgets, the ledger and the host that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bus.errors import EngineError, ModelTooLargeError, OverloadedError
from runtime.residency.entry import Entry, ModelSource
from runtime.residency.ledger import MemoryLedger
from runtime.residency.policy import Room, make_room

_RETRY_AFTER_S = 1.0


class Rooms:
    """Tells who has to leave for a model.

    Args:
        budgets: Bytes for all models of a device, by device; a device that is not named has no budget.
        ledger: Remembers what models take; None: nobody does.
        free: What the host has left; None: unknown.
        reserve_nbytes: What is always left to the host.
    """

    def __init__(
        self,
        budgets: Mapping[str, int],
        ledger: MemoryLedger | None,
        free: Callable[[], int | None],
        reserve_nbytes: int,
    ) -> None:
        self._budgets, self._ledger, self._free, self._reserve = dict(budgets), ledger, free, reserve_nbytes

    def room(
        self, source: ModelSource, everyone: Sequence[Entry], *, running: bool = True
    ) -> tuple[Room, Sequence[Entry]]:
        """How room is made for a model, and the entries that leave for it.

        Args:
            source: Of the model.
            everyone: Every entry.
            running: Whether runs keep their models; no: how room will be made when all of them have ended.
        """
        entries = [one for one in everyone if one.loaded and one.source.device == source.device]
        residents = [one.resident() if running else replace(one.resident(), leases=0) for one in entries]
        free = self._free() if source.device == "cpu" else None
        left = None if free is None else max(0, free - self._reserve)
        budget = self._budgets.get(source.device)
        room = make_room(self._need(source), residents, budget_nbytes=budget, free_nbytes=left)
        leaving = [
            one for one, seen in zip(entries, residents, strict=True) if any(seen is gone for gone in room.evict)
        ]
        return room, leaving

    def refused(self, entry: Entry, missing_nbytes: int, everyone: Sequence[Entry]) -> EngineError:
        """The error of a model that there is no room for; retryable unless its budget can never hold it."""
        device, need = entry.source.device, self._need(entry.source)
        budget = self._budgets.get(device)
        if budget is not None and need > budget:
            return ModelTooLargeError(
                f"{entry.name} ({', '.join(entry.source.refs)}) takes {need / 1e6:.0f} MB on {device}, and all models "
                f"together may take {budget / 1e6:.0f} MB; raise OMNIBUS_MODEL_MEMORY or choose a smaller model",
                need_nbytes=need,
                budget_nbytes=budget,
            )
        held = [one.resident() for one in everyone if one.loaded and one.source.device == device]
        holders = ", ".join(
            f"{one.name} {one.nbytes / 1e6:.0f} MB ({'pinned' if one.pinned else f'{one.leases} runs'})" for one in held
        )
        limit = "the host's memory" if budget is None else f"the budget of {budget / 1e6:.0f} MB"
        return OverloadedError(
            f"no room for {entry.name} on {device}: it takes {need / 1e6:.0f} MB, {missing_nbytes / 1e6:.0f} MB more "
            f"than {limit} has left; held by {holders or 'nobody'}",
            retry_after_s=_RETRY_AFTER_S,
            need_nbytes=need,
            missing_nbytes=missing_nbytes,
            held_by=[one.name for one in held],
        )

    def measured(self, source: ModelSource) -> int | None:
        """What a model was found to take; None: nobody knows."""
        return self._ledger.get(source.key) if self._ledger is not None else None

    def remember(self, entry: Entry) -> None:
        """Keep what a model takes for those who load it later."""
        if self._ledger is not None and entry.source.key:
            self._ledger.put(entry.source.key, entry.nbytes)

    def _need(self, source: ModelSource) -> int:
        known = self.measured(source)
        return source.estimate_nbytes if known is None else known
