"""A discrete-event simulator that replays arrivals against the pool's own policies."""
