"""Which stages a request can still get to, as far as can be told before they run."""

from __future__ import annotations

from collections.abc import Collection

from functions.flow.plan import END, REQUEST, Plan, Source

_MOST = 1024


class Reach:
    """Tells what an event leads to; remembers it, since requests of a pipeline are much alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, frozenset[str]], tuple[str, ...]] = {}

    def stages(self, plan: Plan, stage: str, carried: Collection[str]) -> tuple[str, ...]:
        """The stage itself and those behind it that can run, by name.

        A stage that needs what the request does not have is skipped, and so is what needs its outputs. Whether a
        function has outputs is known when it has run: until then it has.

        Args:
            plan: Of the pipeline.
            stage: Where the request is.
            carried: References that it has values of.
        """
        key = (plan.digest, stage, frozenset(carried))
        if key not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = _stages(plan, stage, key[2])
        return self._known[key]


def _stages(plan: Plan, start: str, carried: frozenset[str]) -> tuple[str, ...]:
    behind, reached, before = {start}, [start], _before(plan, start)

    def can_be_there(source: Source) -> bool:
        if source.optional or source.ref is None or source.ref in carried:
            return True
        maker = source.ref.partition(".")[0]
        # What is neither before nor behind is another branch of the request, which may bring it.
        return maker in reached or not (maker == REQUEST or maker in before or maker in behind)

    for stage in plan.stages:  # in topological order
        if stage.name == END or behind.isdisjoint(stage.upstream):
            continue
        behind.add(stage.name)
        if all(can_be_there(source) for source in stage.inputs.values()):
            reached.append(stage.name)
    return tuple(reached)


def _before(plan: Plan, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(plan.by_name[start].upstream)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += plan.by_name[name].upstream
    return found
