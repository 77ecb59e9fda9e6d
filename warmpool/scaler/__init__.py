"""Several hosts: each tells what it can run, and each works out by the same rule what its part is."""
