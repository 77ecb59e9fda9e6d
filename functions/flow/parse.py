"""Pipeline files: YAML to a checked `Plan`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from bus.contracts.yaml_file import read_yaml
from bus.errors import OmnibusError, PipelineInvalidError
from functions.flow.plan import END, REQUEST, Plan, PlanStage, Source
from functions.registry import Registry

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_REF = re.compile(r"([a-z][a-z0-9_-]*)\.([a-z][a-z0-9_]*)(\?)?")
_TOP = {"pipeline", "description", "inputs", "stages", "outputs"}


def parse_file(path: Path, registry: Registry) -> Plan:
    """The pipeline in a YAML file.

    Raises:
        PipelineInvalidError: Lists every problem of the file.
    """
    try:
        document = read_yaml(path)
    except (OSError, ValueError) as error:
        raise PipelineInvalidError(f"pipeline file {path.name}: not readable as YAML: {error}") from error
    return parse(document, registry, path.name)


def parse(document: Any, registry: Registry, where: str = "pipeline") -> Plan:
    """The pipeline that a YAML document describes.

    Raises:
        PipelineInvalidError: Lists every problem of the document.
    """
    reader = _Reader(registry)
    plan = reader.read(document)
    if plan is None or reader.problems:
        raise PipelineInvalidError(f"{where}: " + "; ".join(reader.problems), problems=reader.problems)
    return plan


class _Reader:
    """Collects problems instead of stopping at the first."""

    def __init__(self, registry: Registry) -> None:
        self.problems: list[str] = []
        self._registry = registry

    def read(self, document: Any) -> Plan | None:
        if not isinstance(document, dict):
            self.problems.append("a pipeline is a map with `pipeline`, `inputs`, `stages` and `outputs`")
            return None
        for key in sorted(set(document) - _TOP):
            self.problems.append(f"unknown key {key!r}; known: {', '.join(sorted(_TOP))}")
        name = document.get("pipeline")
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            self.problems.append(f"`pipeline` is a lower-case name, not {name!r}")
        inputs = self._inputs(document.get("inputs"))
        stages = self._stages(document.get("stages"))
        outputs = self._sources("outputs", document.get("outputs"))
        if not outputs:
            self.problems.append("`outputs` names at least one value")
        for stage, (function, sources) in stages.items():
            self._check_references(stage, sources, stages, inputs)
            self._check_contract(stage, function, sources)
        self._check_references("outputs", outputs, stages, inputs)
        if self.problems:
            return None
        return self._compile(str(name), str(document.get("description", "")), inputs, stages, outputs)

    def _inputs(self, found: Any) -> dict[str, bool]:
        if not isinstance(found, dict) or not all(value in ("required", "optional") for value in found.values()):
            self.problems.append("`inputs` maps names to `required` or `optional`")
            return {}
        return {str(name): value == "required" for name, value in found.items()}

    def _stages(self, found: Any) -> dict[str, tuple[str, dict[str, Source]]]:
        stages: dict[str, tuple[str, dict[str, Source]]] = {}
        if not isinstance(found, dict) or not found:
            self.problems.append("`stages` maps names to stages")
            return stages
        for name, stage in found.items():
            if not (isinstance(name, str) and _NAME.fullmatch(name)) or name in (END, REQUEST):
                self.problems.append(
                    f"a stage's name is a lower-case word other than {END!r} and {REQUEST!r}: {name!r}"
                )
            elif not isinstance(stage, dict) or set(stage) - {"function", "inputs"} or "function" not in stage:
                self.problems.append(f"stage {name!r} has `function` and `inputs`")
            else:
                stages[name] = (str(stage["function"]), self._sources(f"stage {name!r}", stage.get("inputs")))
        return stages

    def _sources(self, where: str, found: Any) -> dict[str, Source]:
        if not isinstance(found, dict):
            self.problems.append(f"{where}: inputs map names to `stage.output`, `request.input` or {{value: …}}")
            return {}
        sources = {}
        for name, text in found.items():
            if isinstance(text, dict) and set(text) == {"value"}:
                sources[str(name)] = Source(value=text["value"])
            elif isinstance(text, str) and (match := _REF.fullmatch(text)):
                sources[str(name)] = Source(ref=f"{match[1]}.{match[2]}", optional=match[3] is not None)
            else:
                self.problems.append(
                    f"{where}: {name} is `stage.output`, `request.input` or {{value: …}}, not {text!r}"
                )
        return sources

    def _check_references(
        self,
        where: str,
        sources: Mapping[str, Source],
        stages: Mapping[str, tuple[str, dict[str, Source]]],
        inputs: Mapping[str, bool],
    ) -> None:
        for source in sources.values():
            if source.ref is None:
                continue
            owner, field = source.ref.split(".")
            if owner == REQUEST:
                if field not in inputs:
                    self.problems.append(f"{where}: {source.ref}: the pipeline has no input {field!r}")
            elif owner not in stages:
                self.problems.append(f"{where}: {source.ref}: no stage {owner!r}")
            else:
                self._check_output(where, source.ref, stages[owner][0], field)

    def _check_output(self, where: str, ref: str, function: str, field: str) -> None:
        try:
            fields = self._registry.get(function).outputs.model_fields
        except OmnibusError:
            return  # told once, where the stage itself is checked
        if field not in fields:
            self.problems.append(f"{where}: {ref}: {function} has no output {field!r}; it has {', '.join(fields)}")

    def _check_contract(self, stage: str, function: str, sources: Mapping[str, Source]) -> None:
        try:
            fields = self._registry.get(function).inputs.model_fields
        except OmnibusError as error:
            self.problems.append(f"stage {stage!r}: {error.message}")
            return
        for name in sorted(set(sources) - set(fields)):
            self.problems.append(f"stage {stage!r}: {function} has no input {name!r}; it has {', '.join(fields)}")
        for name, field in fields.items():
            if field.is_required() and (name not in sources or sources[name].optional):
                self.problems.append(f"stage {stage!r}: {function} needs the input {name!r}")

    def _compile(
        self,
        name: str,
        description: str,
        inputs: dict[str, bool],
        stages: dict[str, tuple[str, dict[str, Source]]],
        outputs: dict[str, Source],
    ) -> Plan | None:
        # Whatever `outputs` names may be missing: a request that needs no speech has no audio.
        end = {key: source.model_copy(update={"optional": True}) for key, source in outputs.items()}
        nodes = {**stages, END: ("", end)}
        upstream = {stage: _owners(sources.values()) for stage, (_, sources) in nodes.items()}
        try:
            order = list(TopologicalSorter(upstream).static_order())
        except CycleError as error:
            self.problems.append(f"the stages wait for each other: {' -> '.join(error.args[1])}")
            return None
        order.sort(key=lambda stage: stage == END)
        compiled: dict[str, PlanStage] = {}
        for stage in reversed(order):
            function, sources = nodes[stage]
            downstream = tuple(other for other in order if stage in upstream[other])
            needed = {ref for other in downstream for ref in (*_refs(nodes[other][1].values()), *compiled[other].live)}
            live = tuple(sorted(ref for ref in needed if ref.split(".")[0] != stage))
            compiled[stage] = PlanStage(
                name=stage,
                function=function,
                inputs=sources,
                upstream=tuple(sorted(upstream[stage])),
                downstream=downstream,
                live=live,
            )
        return Plan(
            pipeline=name,
            description=description,
            inputs=inputs,
            stages=tuple(compiled[stage] for stage in order),
        )


def _refs(sources: Iterable[Source]) -> set[str]:
    return {source.ref for source in sources if source.ref is not None}


def _owners(sources: Iterable[Source]) -> set[str]:
    return {ref.split(".")[0] for ref in _refs(sources)} - {REQUEST}
