"""A host of 1000 MB, on which models take what they are said to take."""

from __future__ import annotations

from runtime.residency.entry import ModelSource
from runtime.residency.ledger import MemoryLedger
from runtime.residency.residency import Residency

MB = 1_000_000


class Host:
    """A host of 1000 MB, on which models take what they are said to take."""

    def __init__(self) -> None:
        self.used = 0
        self.closed: list[str] = []
        self.loads: list[str] = []

    def free(self) -> int:
        return 1000 * MB - self.used

    def resident(self) -> int:
        return self.used

    def source(self, name: str, nbytes: int, *, key: str = "", estimate: int | None = None) -> ModelSource:
        return ModelSource(
            refs=(f"{name}@1",),
            load=lambda: Model(self, name, nbytes),
            key=key,
            estimate_nbytes=nbytes if estimate is None else estimate,
        )

    def residency(self, budget: int | None = None, ledger: MemoryLedger | None = None) -> Residency:
        budgets = {} if budget is None else {"cpu": budget}
        return Residency(budgets, ledger=ledger, free=self.free, resident=self.resident, reserve_nbytes=100 * MB)


class Model:
    """Takes memory of its host until it is closed."""

    def __init__(self, host: Host, name: str, nbytes: int) -> None:
        self._host, self.name, self._nbytes = host, name, nbytes
        host.used += nbytes
        host.loads.append(name)

    def close(self) -> None:
        self._host.used -= self._nbytes
        self._host.closed.append(self.name)


def names(residency: Residency) -> list[str]:
    return sorted(one.name for one in residency.residents())


def use(residency: Residency, *wanted: str) -> None:
    for name in wanted:
        with residency.lease(name) as lease:
            assert lease.model.name == name
