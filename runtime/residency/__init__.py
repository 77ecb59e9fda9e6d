"""Which models are in memory: loaded on demand, shared, evicted under a budget, switched under traffic."""
