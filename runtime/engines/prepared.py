"""Writing a model's optimised graph and its weights in the layout that the processor's kernels read."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from bus.errors import EngineError
from runtime.engines.graph_cache import DATA, MODEL
from runtime.engines.heap import give_back

_INLINE_NBYTES = 1024


def prepare(path: Path, folder: Path) -> None:
    """Open a model on the CPU once, to have the runtime write `model.onnx` and `model.data` into the folder.

    All weights go into the new file: a graph that named the original's weights would look for them beside itself.

    Raises:
        EngineError: The runtime cannot open or write it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(folder / MODEL)
    entries = {
        "session.optimized_model_external_initializers_file_name": DATA,
        "session.optimized_model_external_initializers_min_size_in_bytes": str(_INLINE_NBYTES),
        "session.save_external_prepacked_constant_initializers": "1",
    }
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    try:
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the driver's exceptions have no common class
        raise EngineError(f"the optimised graph of {path} cannot be written: {error}") from error
    give_back()
