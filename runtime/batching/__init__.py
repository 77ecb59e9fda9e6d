"""Items of many callers, run together."""
