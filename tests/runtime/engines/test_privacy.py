"""Nothing of what is opened and run leaves the machine, and nothing is kept for it to leave later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.runtime.engines.small_model import install

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from runtime.engines.onnx import OnnxSession

OnnxSession(Path(sys.argv[1])).run({"x": np.ones((1, 64), np.float32)})
"""


def test_the_runtime_keeps_no_record_of_its_user(tmp_path: Path) -> None:
    path, home = install(tmp_path / "models"), tmp_path / "home"
    home.mkdir()
    # Nothing of this environment: in those of tests and builds the runtime records nothing by itself.
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], env=clean, check=True, timeout=60)
    assert list(home.rglob("*")) == []
