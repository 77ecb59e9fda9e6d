"""The names that we take in site-packages, and what importing them costs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

PACKAGES = {"bus", "functions", "runtime", "warmpool", "infra"}


def test_no_other_distribution_owns_one_of_our_packages():
    owners = importlib.metadata.packages_distributions()
    for name in PACKAGES:
        assert set(owners.get(name, [])) <= {"omnibus-inference"}, f"{name} is also in {owners[name]}"


def test_every_package_imports_from_the_distribution():
    files = importlib.metadata.files("omnibus-inference")
    assert files is not None
    assert importlib.metadata.metadata("omnibus-inference")["License-Expression"] == "Apache-2.0"
    scripts = importlib.metadata.entry_points(group="console_scripts", name="omnibus")
    assert [script.value for script in scripts] == ["infra.cli.main:main"]


@pytest.mark.parametrize(
    "module",
    ["bus", "bus.contracts", "bus.errors", "bus.subjects", "functions", "runtime", "runtime.repository", "warmpool"],
)
def test_importing_a_contract_loads_no_driver(module: str):
    drivers = "{'nats', 'minio', 'onnxruntime', 'onnx', 'tensorrt', 'torch', 'transformers', 'fastapi', 'av', 'PIL'}"
    program = f"import sys, {module}; print(sorted({drivers} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["infra.cli.serve", "infra.cli.gateway", "infra.cli.pool"])
def test_a_process_that_is_always_there_holds_nothing_that_only_commands_and_workers_need(command: str):
    others = "{'httpx', 'rich', 'onnxruntime', 'onnx', 'av', 'PIL', 'tokenizers', 'minio'}"
    program = f"import sys, {command}; print(sorted({others} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_serving_never_imports_torch_or_transformers():
    program = (
        "import sys\n"
        "from functions.registry import registry\n"
        "import warmpool.worker, infra.local.stack, functions.gateway.app\n"
        "registry.load('functions.stages')\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_extras_hold_exactly_one_engine_each():
    requires = importlib.metadata.requires("omnibus-inference") or []
    engines = {line.split(";")[1].strip(): line.split(">")[0] for line in requires if line.startswith("onnxruntime")}
    assert engines == {'extra == "cpu"': "onnxruntime", 'extra == "gpu"': "onnxruntime-gpu"}
    references = [line for line in requires if line.startswith(("torch", "transformers"))]
    assert references
    assert all('extra == "dev"' in line for line in references)
