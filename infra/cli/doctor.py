"""`omnibus doctor`: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from bus.errors import OmnibusError
from infra.local.folder import find_stack
from infra.local.nats_server import find_server
from infra.settings import load_settings
from runtime.repository import Repository

_ENGINES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml")


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        what: What was looked at.
        found: What was found.
        remedy: What to do about it; empty: it is fine.
    """

    what: str
    found: str
    remedy: str = ""


@click.command()
def doctor() -> None:
    """Check this installation; exit status 1 when something must be done."""
    sick = False
    for finding in findings():
        sick = sick or bool(finding.remedy)
        mark = click.style("!!", fg="red") if finding.remedy else click.style("ok", fg="green")
        click.echo(f"{mark} {finding.what:<18} {finding.found}")
        if finding.remedy:
            click.echo(f"   -> {finding.remedy}")
    sys.exit(1 if sick else 0)


def findings() -> Iterator[Finding]:
    """Everything that the doctor looks at."""
    yield Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Finding("omnibus", importlib.metadata.version("omnibus-inference"))
    yield from engine_findings(installed_engines(), shutil.which("nvidia-smi") is not None)
    yield from _provider_findings()
    yield _nats_finding()
    yield _settings_finding()
    yield _model_finding()


def installed_engines() -> dict[str, str]:
    """Versions of the ONNX Runtime distributions that are installed: exactly one should be."""
    found = {}
    for name in _ENGINES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def engine_findings(engines: dict[str, str], has_gpu: bool) -> Iterator[Finding]:
    """What the installed engines mean on a machine with or without a GPU."""
    shown = ", ".join(f"{name} {version}" for name, version in engines.items()) or "none"
    if not engines:
        extra = "gpu" if has_gpu else "cpu"
        yield Finding("engine", shown, f"pip install 'omnibus-inference[{extra}]'")
    elif len(engines) > 1:
        keep = "onnxruntime-gpu" if has_gpu and "onnxruntime-gpu" in engines else next(iter(engines))
        others = " ".join(name for name in engines if name != keep)
        yield Finding(
            "engine",
            shown,
            f"they overwrite each other's files: pip uninstall -y {others} {keep} && pip install {keep}",
        )
    elif has_gpu and "onnxruntime" in engines:
        yield Finding(
            "engine", shown, "a GPU is here but the CPU engine is installed: pip uninstall -y onnxruntime && "
            "pip install 'omnibus-inference[gpu]'",
        )  # fmt: skip
    else:
        yield Finding("engine", shown)


def _provider_findings() -> Iterator[Finding]:
    from runtime.engines.providers import available

    try:
        states = available()
    except OmnibusError as error:
        yield Finding("providers", "the engine does not load", error.message)
        return
    usable = [state.name for state in states if state.usable]
    missing = [state.name for state in states if not state.usable]
    absent = f"; not here: {', '.join(missing)}" if missing else ""
    yield Finding("providers", ", ".join(usable) + absent)


def _nats_finding() -> Finding:
    try:
        server = find_server()
        version = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OmnibusError, OSError, subprocess.CalledProcessError) as error:
        return Finding("nats-server", "does not run", str(error))
    return Finding("nats-server", version)


def _settings_finding() -> Finding:
    try:
        settings = load_settings()
    except OmnibusError as error:
        return Finding("settings", error.message, "unset or correct them")
    stack = find_stack(settings.data)
    running = "no stack runs" if stack is None else f"a stack runs at {stack.gateway_url} (process {stack.pid})"
    return Finding("data folder", f"{settings.data}: {running}")


def _model_finding() -> Finding:
    repository = Repository(load_settings().models)
    wanted = {entry.id for entry in repository.catalog if "demo" in entry.sets}
    missing = sorted(wanted - {manifest.id for manifest in repository.list()})
    if missing:
        return Finding("models", f"missing: {', '.join(missing)}", "omnibus models pull demo")
    return Finding("models", f"{len(wanted)} of the demo set in {repository.root}")
