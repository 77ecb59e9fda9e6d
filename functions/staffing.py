"""How many workers the requests of this moment need: what the pool, the scaler and the gateway agree on."""

from __future__ import annotations

import math

USUAL_SERVICE_S = 0.5
"""How long a request runs, until somebody has measured it."""


def for_backlog(requests: int, slots: int, service_s: float, target_wait_s: float) -> int:
    """Workers for requests that are there now: running and waiting.

    Until the wait that is wanted is over, each slot takes its first request and another one every `service_s`; that has
    to be all of them.

    Args:
        requests: That run or wait.
        slots: Requests that a worker runs at once.
        service_s: How long one runs.
        target_wait_s: How long the last may wait; 0: each has a slot of its own.
    """
    if requests <= 0:
        return 0
    a_slot = 1.0 + target_wait_s / max(service_s, 1e-9)
    return max(1, math.ceil(requests / (slots * a_slot) - 1e-9))
