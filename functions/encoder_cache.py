"""Media that were encoded before: their token blocks, across requests, under a budget of bytes.

What is kept is the block, by reference; its tensors are in the tensor plane like any others. Everybody's entries are
mirrored, so that a piece that nobody has seen costs no question; the one who writes makes room.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from bus.contracts import Contract, TensorRef, TokenBlock
from bus.contracts.codec import decode, digest_of, encode
from bus.errors import ContractError, OmnibusError
from bus.mirror import Mirror
from bus.ports import KeyValue, ObjectStore
from functions.flights import Flights

log = logging.getLogger("omnibus.encoder_cache")

DEFAULT_BUDGET_NBYTES = 1 << 30
_KEEP_S = 7 * 86_400.0
"""Its tensors are removed a day later, see `bus.store.once`: until then whoever found a block finds them, too."""
_TOUCH_S = 60.0
"""Uses within this time count as one: not every hit is a write."""
_SWEEP_S = 600.0
"""So often those are looked for that are too old; one that is wanted before is found to be so then."""
_ROOM = 0.9
"""Where the budget is passed, so much of it stays: not every write has to make room."""


class EncodedMedia(Contract):
    """An entry of the cache."""

    schema_name = "omnibus.encoded_media"
    schema_version = 1

    block: TokenBlock
    made_s: float = Field(description="Unix time at which it was encoded.")
    used_s: float = Field(description="Unix time at which it was last wanted, to within a minute.")


@dataclass(slots=True)
class _Known:
    nbytes: int
    made_s: float
    used_s: float


class EncoderCache(Mirror):
    """Token blocks by media, model and settings. Use as a context manager.

    Args:
        bucket: Where entries are.
        store: Where their tensors are, when they are on no host any more.
        budget_nbytes: The most bytes of all blocks; those that were unused for longest go first. 0: nothing is kept.
        shared: Whether tenants share what was encoded for one of them. The time to the first token would tell one what
            another has sent, so by default they do not.
        clock: Unix time.

    Attributes:
        hits: Blocks that this process found.
        misses: Blocks that it did not.
        evicted: Blocks that it let go for others.
        flights: Blocks that are being made here now.
    """

    def __init__(
        self,
        bucket: KeyValue,
        store: ObjectStore,
        *,
        budget_nbytes: int = DEFAULT_BUDGET_NBYTES,
        shared: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(bucket)
        self._store = store
        self._budget, self._shared, self._clock = budget_nbytes, shared, clock
        self._known: dict[str, _Known] = {}
        self._nbytes = 0
        """Of all that is known."""
        self._swept_s = clock()
        self.hits = self.misses = self.evicted = 0
        self.flights: Flights[TokenBlock] = Flights()

    @property
    def statistics(self) -> dict[str, int]:
        """What this process found and did not, and what all of them together keep."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "evicted": self.evicted,
            "entries": len(self._known),
            "nbytes": self._nbytes,
        }

    def key(self, tenant: str, media: str, model: str, *settings: Any) -> str:
        """What a block is found by.

        Args:
            tenant: Whose request it is.
            media: Digest of the media.
            model: Digest of the model that encodes them.
            settings: All else that its tokens depend on, as plain values.
        """
        return digest_of(["" if self._shared else tenant, self._shared, media, model, list(settings)])[:40]

    def knows(self, key: str) -> bool:
        """Whether there is a block of that key, as far as is known here."""
        return key in self._known

    async def get(self, key: str) -> TokenBlock | None:
        """The block, when it is known and all of its tensors are still there; a cache that fails costs no request."""
        known = self._known.get(key)
        try:
            found = None if known is None else await self._read(key)
        except OmnibusError as error:  # no bus, no store, or an entry of a newer version
            log.warning("encoded media are not looked up: %s", error)
            found = None
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        return found.block

    async def put(self, key: str, block: TokenBlock) -> None:
        """Remember a block; a bus that does not take it costs nothing but the next one's time."""
        nbytes = _nbytes(block)
        if nbytes > self._budget:
            return
        now_s = self._clock()
        try:
            await self._bucket.put(key, encode(EncodedMedia(block=block, made_s=now_s, used_s=now_s)))
            self._note(key, _Known(nbytes, now_s, now_s))
            await self._make_room(now_s)
        except OmnibusError as error:
            log.warning("encoded media are not remembered: %s", error)

    async def _read(self, key: str) -> EncodedMedia | None:
        entry = await self._bucket.get(key)
        found = None if entry is None else decode(EncodedMedia, entry[0])
        now_s = self._clock()
        if found is None or now_s - found.made_s > _KEEP_S or not await self._is_whole(found.block):
            await self._forget(key)
            return None
        self._note(key, _Known(_nbytes(found.block), found.made_s, now_s))
        if now_s - found.used_s > _TOUCH_S:
            used = found.model_copy(update={"used_s": now_s})
            await self._bucket.put(key, encode(used))
        return found

    async def _is_whole(self, block: TokenBlock) -> bool:
        kept = [ref.key for ref in _tensors(block) if ref.inline is None]
        if None in kept:
            return False
        sizes = await asyncio.gather(*(self._store.nbytes(key) for key in kept if key is not None))
        return None not in sizes

    async def _make_room(self, now_s: float) -> None:
        if now_s - self._swept_s > _SWEEP_S:
            self._swept_s = now_s
            for key in [key for key, one in self._known.items() if now_s - one.made_s > _KEEP_S]:
                await self._forget(key)
        if self._nbytes <= self._budget:
            return
        for key, _ in sorted(self._known.items(), key=lambda item: item[1].used_s):
            if self._nbytes <= self._budget * _ROOM:
                break
            if key in self._known:  # else another one, who makes room, too, was faster
                await self._forget(key)
                self.evicted += 1

    async def _forget(self, key: str) -> None:
        self._note(key, None)
        await self._bucket.delete(key)

    def _note(self, key: str, known: _Known | None) -> None:
        """What is known of a key from now on; None: nothing."""
        before = self._known.pop(key, None)
        self._nbytes -= before.nbytes if before is not None else 0
        if known is not None:
            self._known[key] = known
            self._nbytes += known.nbytes

    def _on_change(self, key: str, value: bytes | None) -> None:
        self._note(key, None)
        if value is None:
            return
        try:
            entry = decode(EncodedMedia, value)
        except ContractError:  # of a newer worker, which looks after it
            return
        self._note(key, _Known(_nbytes(entry.block), entry.made_s, entry.used_s))


def _tensors(block: TokenBlock) -> Iterator[TensorRef]:
    return (ref for ref in (block.embeddings, block.positions, block.regions) if ref is not None)


def _nbytes(block: TokenBlock) -> int:
    return sum(ref.nbytes for ref in _tensors(block))
