"""Keys and values of prompts that were seen before, so that what is shared is not computed again.

A prompt is cut into blocks of tokens. A block's key covers everything before it too, so equal keys mean an equal
prefix: blocks are shared by all prompts that begin alike, whatever follows.

Source: Kwon et al., PagedAttention (SOSP 2023), section 4.4; the hash chain is vLLM's automatic prefix caching.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from runtime.generation.kv import KvPool
from runtime.generation.request import MEDIA_TOKEN, PromptTokens

Floats = NDArray[np.float32]

BLOCK_TOKENS = 16
"""Tokens of a block: what is shared is a multiple of it."""

_KEY_NBYTES = 16


class PrefixCache:
    """Blocks under a byte budget; the ones unused for longest go first. Used from the engine's thread only.

    Args:
        pool: The rows that blocks are copied from and into.
        max_nbytes: The most memory of all blocks; 0 keeps nothing.
    """

    def __init__(self, pool: KvPool, max_nbytes: int) -> None:
        self._pool = pool
        self._max_nbytes = max_nbytes
        self._blocks: OrderedDict[bytes, Floats] = OrderedDict()
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Memory of the blocks that are kept."""
        return self._nbytes

    def restore(self, keys: Sequence[bytes], row: int) -> int:
        """Copy the longest known beginning into a row; returns its number of tokens.

        Args:
            keys: What `block_keys` gave for the prompt.
            row: The row, from its first token.
        """
        found = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            found.append(block)
        if not found:
            return 0
        self._touch(keys[: len(found)])
        self._pool.write(row, np.concatenate(found, axis=2))
        return len(found) * BLOCK_TOKENS

    def store(self, keys: Sequence[bytes], row: int) -> None:
        """Keep the blocks of a row that are not known yet.

        Args:
            keys: Of the row's tokens, from its first.
            row: The row; it holds at least the tokens of `keys`.
        """
        if not self._max_nbytes:
            return
        for place, key in enumerate(keys):
            if key not in self._blocks:
                start = place * BLOCK_TOKENS
                block = self._blocks[key] = self._pool.read(row, start, start + BLOCK_TOKENS)
                self._nbytes += block.nbytes
        self._touch(keys)
        while self._nbytes > self._max_nbytes:
            self._nbytes -= self._blocks.popitem(last=False)[1].nbytes

    def _touch(self, keys: Sequence[bytes]) -> None:
        # The end of a prefix becomes older than its beginning: without the beginning the end cannot be found.
        for key in reversed(keys):
            self._blocks.move_to_end(key)


def block_keys(prompt: PromptTokens, answer: Sequence[int] = ()) -> list[bytes]:
    """The key of each whole block of a prompt and the tokens after it.

    Args:
        prompt: Token ids, embeddings where they take the place of tokens, and positions; all are in the keys.
        answer: Token ids behind the prompt.
    """
    ids = np.concatenate([prompt.ids, np.asarray(answer, np.int32)])
    slots = np.concatenate([[0], (ids == MEDIA_TOKEN).cumsum()])
    ahead = _ahead(prompt, len(ids))
    keys: list[bytes] = []
    parent = blake2b(prompt.scope.encode(), digest_size=_KEY_NBYTES).digest()
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        stop = start + BLOCK_TOKENS
        state = blake2b(parent, digest_size=_KEY_NBYTES)
        state.update(np.ascontiguousarray(ids[start:stop]).data)
        state.update(np.ascontiguousarray(prompt.embeddings[slots[start] : slots[stop]]).tobytes())
        if ahead[:, start:stop].any():
            state.update(ahead[:, start:stop].tobytes())
        parent = state.digest()
        keys.append(parent)
    return keys


def _ahead(prompt: PromptTokens, tokens: int) -> NDArray[np.int32]:
    """How far the positions of a prompt and its answer are ahead of their places, int32 `(3, token)`."""
    ahead = np.full((3, tokens), prompt.shift, np.int32)
    if prompt.positions is not None:
        given = prompt.positions.shape[1]
        ahead[:, :given] = prompt.positions - np.arange(given, dtype=np.int32)
    return ahead
