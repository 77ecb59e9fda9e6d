"""Who may pull next: slots of one function shared over its lanes.

JetStream has no message priorities, so lanes are subjects and the priority is in the pulling. A pull that
waits at the server is a slot given away: every lane always holds one (so nobody waits for another lane),
and the rest goes, weighted, to lanes that are known to have messages waiting.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bus.contracts import Lane

WEIGHTS: Mapping[Lane, int] = {Lane.INTERACTIVE: 8, Lane.STANDARD: 3, Lane.BATCH: 1}
"""Shares of the free slots when every lane has messages waiting."""


@dataclass
class LaneState:
    """What is known of one lane.

    Attributes:
        weight: Its share.
        pulled: Slots given away to pulls that wait at the server.
        waiting: Messages that wait at the server, as last told.
        finish_tag: Virtual time at which its share of the slots given so far is used up.
    """

    weight: int
    pulled: int = 0
    waiting: int = 0
    finish_tag: float = 0.0


class LanePolicy:
    """Shares the slots of one function. Pure: no clock, no I/O.

    Attributes:
        slots: Messages that the worker holds at most, waiting pulls included.
        busy: Messages that it holds.
    """

    def __init__(self, slots: int, lanes: Iterable[Lane] = tuple(Lane), weights: Mapping[Lane, int] = WEIGHTS) -> None:
        self.lanes = {lane: LaneState(weights[lane]) for lane in lanes}
        if slots < len(self.lanes):
            raise ValueError(f"{slots} slots cannot be shared by {len(self.lanes)} lanes: at least one each")
        self.slots = slots
        self.busy = 0
        self._now = 0.0

    @property
    def free(self) -> int:
        """Slots that neither a message nor a waiting pull holds."""
        return self.slots - self.busy - sum(lane.pulled for lane in self.lanes.values())

    @property
    def full(self) -> bool:
        """Whether the next message of some lane has to wait: the slots that idle lanes keep are none for it."""
        return self.free <= 0 and any(state.pulled == 0 for state in self.lanes.values())

    def arrived(self, lane: Lane, waiting: int, *, pulled: bool = True) -> bool:
        """A message came.

        Args:
            lane: Its lane.
            waiting: Messages that wait behind it.
            pulled: Whether it answers one of the pulls that are counted; False: one that was given up as lost.

        Returns:
            Whether a slot is left for it. False means a pull that was thought lost was answered after all:
            hand the message back.
        """
        state = self.lanes[lane]
        state.waiting = waiting
        if pulled and state.pulled > 0:
            state.pulled -= 1
        elif self.free <= 0:
            return False
        self.busy += 1
        return True

    def settled(self) -> None:
        """A message was acked, handed back or given up."""
        self.busy -= 1

    def expired(self, lane: Lane, count: int) -> None:
        """Pulls of a lane ended without a message: nothing waits there."""
        state = self.lanes[lane]
        state.pulled = max(0, state.pulled - count)
        state.waiting = 0

    def unsent(self, lane: Lane, count: int) -> None:
        """Pulls that were shared out never left: their slots are free again."""
        state = self.lanes[lane]
        state.pulled = max(0, state.pulled - count)

    def reset(self, lane: Lane) -> None:
        """The server forgot the lane's pulls, after a restart for instance."""
        self.lanes[lane].pulled = 0

    def share(self) -> dict[Lane, int]:
        """Give the free slots away; returns how many messages to pull for each lane now."""
        pulls: dict[Lane, int] = {}
        for lane, state in self.lanes.items():
            if state.pulled == 0 and self.free > 0:
                self._give(pulls, lane)
        while self.free > 0:
            hungry = [lane for lane, state in self.lanes.items() if state.waiting > state.pulled]
            if not hungry:
                break
            self._give(pulls, min(hungry, key=self._start_tag))
        return pulls

    def _start_tag(self, lane: Lane) -> float:
        # Start-time fair queueing: a lane that was quiet starts from now, without credit for its silence.
        return max(self.lanes[lane].finish_tag, self._now)

    def _give(self, pulls: dict[Lane, int], lane: Lane) -> None:
        state = self.lanes[lane]
        pulls[lane] = pulls.get(lane, 0) + 1
        state.pulled += 1
        self._now = self._start_tag(lane)
        state.finish_tag = self._now + 1 / state.weight
