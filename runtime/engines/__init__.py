"""Models that run: sessions of ONNX Runtime, and what they are opened with."""

import os

# From 1.32 on ONNX Runtime's wheels send what is opened and run, with an id of the machine, to their maker. Whoever
# wants that sets the variable to 0; it counts from before the first import, and this is imported before that.
# Source: ONNX Runtime, pull request 27379, "Add POSIX telemetry".
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
