"""Other systems, measured beside ours in the same run: each in an environment and a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from _report import ROOT

_ENVIRONMENTS = ROOT / ".venv-peers"
_SCRIPTS = ROOT / "benchmarks" / "peers"


def peer_python(name: str, *steps: Sequence[str], variables: Mapping[str, str] | None = None) -> Path:
    """The interpreter of a peer's environment, which is made when it is not there.

    Args:
        name: Of the environment.
        steps: Packages, installed with pip one step after the other.
        variables: Environment variables of the installation.
    """
    python = _ENVIRONMENTS / name / "bin" / "python"
    done = _ENVIRONMENTS / name / ".installed"
    wanted = json.dumps([steps, dict(variables or {})])
    if done.exists() and done.read_text() == wanted:
        return python
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_ENVIRONMENTS / name)], check=True)
    for packages in steps:
        print(f"installing {', '.join(packages)} for the comparison …", flush=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run(command, check=True, env=own_environment() | dict(variables or {}))
    done.write_text(wanted)
    return python


def own_environment() -> dict[str, str]:
    """Our environment variables without what would let a peer import our packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class Peer:
    """A script of `benchmarks/peers/` that answers one line of JSON with another.

    Between two turns the process stands still: threads that spin for more work would take the cores of whoever is next.

    Args:
        python: See `peer_python`.
        script: File name.
        arguments: Of its command line.
    """

    def __init__(self, python: Path, script: str, *arguments: str) -> None:
        self._command = [str(python), str(_SCRIPTS / script), *arguments]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own_environment()
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # ends one that stands still, too
        self._process.wait()

    def ask(self, **request: Any) -> dict[str, Any]:
        """One turn."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries greet on the same channel
                self._process.send_signal(signal.SIGSTOP)
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{' '.join(self._command)} ended with {self._process.wait()}")
