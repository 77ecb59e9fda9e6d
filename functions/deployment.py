"""A deployment file: what a deployer sets for the warm pool, function by function.

    defaults: {keep_alive_s: 600}
    functions:
      image.encode:
        warm: {min: 1, max: 3, tier: hot}
      text.embed:
        cold_start_opt: "warm_pool:2"

What a file does not say is as the function's own code declares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from bus.contracts.yaml_file import read_yaml
from bus.errors import ContractError, StackConfigError
from functions.spec import FunctionSpec
from functions.warm import WarmSpec, read_warm


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The settings of one file.

    Attributes:
        defaults: For every function, over what its code declares.
        functions: What the file says of each function that it names: `{"warm": {…}}` or `{"cold_start_opt": …}`.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, spec: FunctionSpec) -> WarmSpec:
        """A function's settings.

        Raises:
            ContractError: What the file says of it makes no sense beside what its code declares.
        """
        warm = spec.warm.changed(self.defaults)
        return read_warm(self.functions[spec.name], warm) if spec.name in self.functions else warm


def read_deployment(path: Path, specs: Iterable[FunctionSpec]) -> Deployment:
    """The deployment file at a path.

    Args:
        path: The file.
        specs: The functions that it may name.

    Raises:
        StackConfigError: Lists every problem with the file, the function, the setting and its value.
    """
    try:
        document = read_yaml(path)
    except OSError as error:
        raise StackConfigError(f"deployment file {path} cannot be read: {error.strerror}", path=str(path)) from error
    except ValueError as error:
        raise StackConfigError(f"deployment file {path} is no YAML: {error}", path=str(path)) from error
    deployment, problems = _read({} if document is None else document, list(specs))
    if problems:
        raise StackConfigError(f"deployment file {path}: " + "; ".join(problems), problems=problems)
    return deployment


def group_settings(
    specs: Iterable[FunctionSpec],
    deployment: Deployment | None = None,
    floor: Mapping[str, int] | None = None,
) -> dict[str, WarmSpec]:
    """Settings by function group: workers serve groups, so the most demanding function of each decides.

    The largest `min` and `max`, the longest `keep_alive_s`, the highest `tier`, the shortest `target_wait_ms`; and it
    looks ahead when one of them does. A function that leaves its keep-alive to the forecast asks for none.

    Args:
        specs: The functions.
        deployment: What the deployer has set; None: nothing.
        floor: The least workers of a group, whatever its functions say.
    """
    deployment, floor = deployment or Deployment(), floor or {}
    groups: dict[str, WarmSpec] = {}
    for spec in specs:
        warm = deployment.of(spec)
        groups[spec.group] = _merged(groups[spec.group], warm) if spec.group in groups else warm
    for group, least in floor.items():
        if group in groups:
            warm = groups[group]
            groups[group] = replace(warm, min=max(warm.min, least), max=max(warm.max, least))
    return groups


def starting_group(specs: Iterable[FunctionSpec], settings: Mapping[str, WarmSpec]) -> str | None:
    """The group whose worker starts pipelines while none is there: what is ready soonest; any worker can.

    Args:
        specs: The functions.
        settings: By group; others are not looked at.

    Returns:
        Its name; None: there is no group.
    """
    models = dict.fromkeys(settings, 0)
    for spec in specs:
        if spec.group in models:
            models[spec.group] += len(spec.models)
    return min(models, key=lambda group: (-settings[group].min, models[group], group), default=None)


def _merged(one: WarmSpec, other: WarmSpec) -> WarmSpec:
    kept = [warm.keep_alive_s for warm in (one, other) if warm.keep_alive_s is not None]
    return WarmSpec(
        min=max(one.min, other.min),
        max=max(one.max, other.max),
        keep_alive_s=max(kept) if kept else None,
        tier=max(one.tier, other.tier, key=lambda tier: tier.rank),
        target_wait_ms=min(one.target_wait_ms, other.target_wait_ms),
        look_ahead=one.look_ahead or other.look_ahead,
    )


def _read(document: Any, specs: list[FunctionSpec]) -> tuple[Deployment, list[str]]:
    if not isinstance(document, dict) or set(document) - {"defaults", "functions"}:
        return Deployment(), [f"a deployment file is a map with `defaults` and `functions`, not {document!r}"]
    problems: list[str] = []
    defaults, functions = document.get("defaults") or {}, document.get("functions") or {}
    for name, found in (("defaults", defaults), ("functions", functions)):
        if not isinstance(found, dict):
            problems.append(f"`{name}` is a map, not {found!r}")
    if problems:
        return Deployment(), problems
    known = {spec.name for spec in specs}
    problems += [f"no function {name!r}{_hint(name, known)}" for name in functions if name not in known]
    try:
        WarmSpec().changed(defaults)
    except ContractError as error:
        return Deployment(), [*problems, *(f"defaults: {problem}" for problem in error.details["problems"])]
    deployment = Deployment(defaults=defaults, functions=functions)
    for spec in specs:
        try:
            deployment.of(spec)
        except ContractError as error:
            problems += [f"function {spec.name!r}: {problem}" for problem in error.details["problems"]]
    return deployment, problems


def _hint(name: Any, known: set[str]) -> str:
    near = get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; functions: {', '.join(sorted(known))}"
