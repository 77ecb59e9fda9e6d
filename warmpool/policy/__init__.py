"""When workers start and when they end: pure functions of what is known, the same for the pool and the simulator."""
