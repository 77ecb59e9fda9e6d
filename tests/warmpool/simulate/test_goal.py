from __future__ import annotations

from warmpool.policy.group_forecast import GroupForecast
from warmpool.policy.keep_alive import FixedKeepAlive
from warmpool.simulate.azure import azure
from warmpool.simulate.engine import Simulation
from warmpool.simulate.trace import DAY_S


def test_a_day_has_half_the_cold_starts_of_ten_minutes_for_everybody_at_no_more_memory():
    trace = azure(functions=60, duration_s=DAY_S, seed=1, most_per_day=1_440)
    fixed = Simulation(trace, FixedKeepAlive(600)).run()
    ours = Simulation(trace, GroupForecast()).run()
    assert ours.cold_rate <= fixed.cold_rate / 2
    assert ours.wasted <= fixed.wasted
