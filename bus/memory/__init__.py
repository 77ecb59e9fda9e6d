"""The bus within one process: the semantics of JetStream without a server."""

from bus.memory.bus import MemoryBus

__all__ = ["MemoryBus"]
