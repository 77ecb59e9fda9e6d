from __future__ import annotations

import pytest

from infra.cli.doctor import engine_findings, findings


@pytest.mark.parametrize(
    ("engines", "has_gpu", "remedy"),
    [
        ({"onnxruntime": "1.22"}, False, ""),
        ({"onnxruntime-gpu": "1.22"}, True, ""),
        ({}, False, "omnibus-inference[cpu]"),
        ({}, True, "omnibus-inference[gpu]"),
        ({"onnxruntime": "1", "onnxruntime-gpu": "1"}, True, "uninstall -y onnxruntime onnxruntime-gpu"),
        ({"onnxruntime": "1", "onnxruntime-gpu": "1"}, False, "pip install onnxruntime"),
        ({"onnxruntime": "1"}, True, "omnibus-inference[gpu]"),
    ],
)
def test_engines_that_are_missing_doubled_or_wrong_have_a_remedy(engines: dict[str, str], has_gpu: bool, remedy: str):
    (finding,) = engine_findings(engines, has_gpu)
    assert remedy in finding.remedy
    assert bool(finding.remedy) == bool(remedy)


def test_this_installation_is_looked_at_from_python_to_models():
    looked_at = [finding.what for finding in findings()]
    assert looked_at == ["python", "omnibus", "engine", "providers", "nats-server", "data folder", "models"]
