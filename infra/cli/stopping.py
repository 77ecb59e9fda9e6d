"""How a command that serves is told to end."""

from __future__ import annotations

import asyncio
import os
import signal


def stop_asked() -> asyncio.Event:
    """What SIGINT and SIGTERM set, so that all ends in order; the second one ends the process now.

    Its children die with it, and what they were running is delivered again.
    """
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop
