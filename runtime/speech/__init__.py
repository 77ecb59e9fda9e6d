"""Speech: finding it, writing it down, and saying it. Importing this package loads no driver."""
