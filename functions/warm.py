"""What a function asks of the warm pool: how many workers wait for it, how ready, and how long a request may wait."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from bus.contracts import Tier
from bus.errors import ContractError

_SHORT = re.compile(r"warm_pool:(\d{1,4})")
DEFAULT_MAX = 4
MOST = 9_999
"""Workers of a function at most: what is larger is a slip, and would be counted one by one."""


@dataclass(frozen=True, kw_only=True)
class WarmSpec:
    """How warm a function is kept.

    Attributes:
        min: Workers that are always there, on all hosts together; 0: it scales to zero.
        max: The most workers, on all hosts together, as Knative's `max-scale` and KEDA's `maxReplicaCount` mean it. How
            many one host runs follows from its memory. While hosts learn of each other there may be one too many.
        keep_alive_s: Seconds that a worker without work is kept at least. None: for as long as the forecast finds the
            next request likely enough, and never more memory over time than ten minutes for everybody would take.
        tier: How ready the workers are that wait.
        target_wait_ms: How long, in milliseconds, a request may wait for a worker before there are to be more of them.
        look_ahead: Whether a request that will reach this function later starts a worker for it now.
    """

    min: int = 0
    max: int = DEFAULT_MAX
    keep_alive_s: float | None = None
    tier: Tier = Tier.LOADED
    target_wait_ms: float = 500.0
    look_ahead: bool = True

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise ContractError("warm: " + "; ".join(problems), problems=problems)

    @classmethod
    def short(cls, text: str) -> WarmSpec:
        """The settings that a short form such as `warm_pool:2` stands for: so many workers are always there.

        Raises:
            ContractError: It is of another form.
        """
        return cls().changed(_from_short(text))

    def changed(self, settings: Mapping[str, Any]) -> WarmSpec:
        """These settings with some of them replaced, as a deployment file gives them.

        Raises:
            ContractError: Lists every setting that is unknown or has a value that it cannot have.
        """
        names = [field.name for field in fields(self)]
        problems = [f"{name!r} is not a setting{_hint(name, names)}" for name in settings if name not in names]
        given = {name: value for name, value in settings.items() if name in names}
        try:
            changed = replace(self, **given)
        except ContractError as error:
            problems += error.details["problems"]
        if problems:
            raise ContractError("warm: " + "; ".join(problems), problems=problems)
        return replace(changed, tier=Tier(changed.tier))


def read_warm(settings: Any, base: WarmSpec | None = None) -> WarmSpec:
    """A function's settings as they are written: `{warm: {min: 1}}` or `{cold_start_opt: "warm_pool:2"}`.

    Args:
        settings: What the file says of the function.
        base: What holds for what it does not say; None: the defaults.

    Raises:
        ContractError: Lists every problem.
    """
    base = base or WarmSpec()
    if not isinstance(settings, Mapping) or len(settings) != 1 or not set(settings) <= {"warm", "cold_start_opt"}:
        problem = f"a function has either `warm` or `cold_start_opt`, not {settings!r}"
        raise ContractError(problem, problems=[problem])
    if "cold_start_opt" in settings:
        short = _from_short(settings["cold_start_opt"])
        return base.changed({**short, "max": max(base.max, short["max"])})
    if not isinstance(settings["warm"], Mapping):
        problem = f"`warm` is a map of settings such as {{min: 1, max: 2}}, not {settings['warm']!r}"
        raise ContractError(problem, problems=[problem])
    return base.changed(settings["warm"])


def _from_short(text: Any) -> dict[str, int]:
    match = _SHORT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        problem = f"cold_start_opt is like 'warm_pool:2', the number of workers that wait, not {text!r}"
        raise ContractError(problem, problems=[problem])
    return {"min": int(match[1]), "max": max(int(match[1]), DEFAULT_MAX)}


def _problems(spec: WarmSpec) -> list[str]:
    problems = []
    counts_fine = _whole(spec.min, 0) and _whole(spec.max, 1)
    if not _whole(spec.min, 0):
        problems.append(f"min is a whole number from 0 to {MOST}, not {spec.min!r}")
    if not _whole(spec.max, 1):
        problems.append(f"max is a whole number from 1 to {MOST}, not {spec.max!r}")
    if counts_fine and spec.min > spec.max:
        problems.append(f"min is {spec.min} and max is {spec.max}; raise max or lower min")
    if spec.keep_alive_s is not None and not _number(spec.keep_alive_s, 0):
        problems.append(f"keep_alive_s is seconds from 0, or nothing for the forecast, not {spec.keep_alive_s!r}")
    if spec.tier not in list(Tier):
        problems.append(f"tier is one of {', '.join(Tier)}, not {spec.tier!r}")
    if not _number(spec.target_wait_ms, 0):
        problems.append(f"target_wait_ms is milliseconds from 0, not {spec.target_wait_ms!r}")
    if not isinstance(spec.look_ahead, bool):
        problems.append(f"look_ahead is true or false, not {spec.look_ahead!r}")
    return problems


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _number(value: Any, least: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= least


def _hint(name: Any, names: list[str]) -> str:
    near = get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; settings: {', '.join(names)}"
