"""Progress bars for models that are pulled or built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
from rich.progress import Progress as RichBars

from runtime.repository import Progress, Step


@contextmanager
def bars() -> Iterator[Progress]:
    """Progress bars on stderr, to be handed to the repository."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with RichBars(*columns, console=Console(stderr=True), transient=False) as progress:
        yield _Bars(progress)


class _Bars:
    """One bar a download and one a build."""

    def __init__(self, progress: RichBars) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: Step) -> None:
        if step.action == "ready":
            self._finish(step.model)
            return
        name = f"{step.model}: {step.subject if step.action in ('download', 'upload') else 'building'}"
        if name not in self._tasks:
            self._finish(step.model)
            self._tasks[name] = self._progress.add_task(name, total=step.total)
        self._progress.update(self._tasks[name], completed=step.done, total=step.total)

    def _finish(self, model: str) -> None:
        for name, task in self._tasks.items():
            if name.startswith(f"{model}: "):
                seen = self._progress.tasks[self._progress.task_ids.index(task)]
                self._progress.update(task, total=seen.completed or 1, completed=seen.completed or 1)
