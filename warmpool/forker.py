"""The pool's side of a template: starts it, has it fork, and replaces it when it dies."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bus.errors import WorkerStartError
from warmpool.adopted import AdoptedProcess, end_waiting, reap_strays
from warmpool.backoff import Backoff
from warmpool.log_tail import log_tail
from warmpool.process import Process, adopt_orphans, spawn, stop
from warmpool.template import MAX_REQUEST_NBYTES, ONE_THREAD

log = logging.getLogger("omnibus.template")

_GRACE_S = 2.0

_ANSWER_S = 15.0
"""A template that has not forked after so long hangs; a fork takes some milliseconds."""


class Forker:
    """Has workers forked from a template. Use as a context manager.

    Args:
        command: Starts the template, given the number of its control socket.
        environment: Of the template, and so of its workers.
        log_path: Of the template itself.
        start_attempts: A template that ends so often in a row before it has told what it is fails the forker.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        log_path: Path,
        start_attempts: int = 3,
    ) -> None:
        self._command, self._log_path, self._start_attempts = command, log_path, start_attempts
        self._environment = {**ONE_THREAD, **environment}
        self._control: socket.socket | None = None
        self._told: asyncio.Future[dict[str, Any]]
        self._one_at_a_time = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._given = asyncio.Event()
        self._handed: set[int] = set()
        self.pid = 0
        """Of the template that runs now."""

    async def __aenter__(self) -> Self:
        """Begin to start the template, whose workers will be this process's children."""
        adopt_orphans()
        loop = asyncio.get_running_loop()
        self._told = loop.create_future()
        self._keeper = loop.create_task(self._keep(), name="keep-template")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the template; its workers live on."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._told.cancel()
        reap_strays()

    async def told(self) -> Mapping[str, Any]:
        """What the template has told of itself; waits until it has.

        Raises:
            WorkerStartError: It does not start; names its log file.
        """
        return await asyncio.shield(self._told)

    @property
    def ready(self) -> bool:
        """Whether there is a template that waits for work."""
        return self._told.done() and not self._one_at_a_time.locked()

    async def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Process:
        """A new worker, as soon as there is a template; where that must not fork, it becomes the worker.

        Args:
            request: What the worker is to be; plain values.
            descriptors: Its files: channel, log, and what else it gets.

        Raises:
            WorkerStartError: The template cannot be started again; (retryable) it has no room for another process now.
                (retryable) It died meanwhile, and may have forked: whoever tries again makes a new channel, so that
                nobody shares it.
        """
        await self.told()
        # Whoever gives up meanwhile closes its files, and must not keep the next one from getting its own answer.
        answer = await asyncio.shield(self._ask(request, [os.dup(descriptor) for descriptor in descriptors]))
        if "error" in answer:
            raise WorkerStartError(f"{answer['error']}; its log is {self._log_path}", retryable=True)
        if not answer.get("itself"):
            return AdoptedProcess(int(answer["pid"]))
        process, self._process = self._process, None
        if process is None:
            raise WorkerStartError("the template died as it became a worker", retryable=True)
        self._told = asyncio.get_running_loop().create_future()
        self._given.set()
        return process

    async def renew(self) -> None:
        """End the template; the next one has imported what is installed and set now. Its workers live on."""
        if self._told.done():  # else it is told by the next one
            self._told = asyncio.get_running_loop().create_future()
        if self._process is not None:
            await stop(self._process, _GRACE_S)

    async def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        data = b""
        async with self._one_at_a_time:
            control, told = self._control, self._told
            try:
                if control is not None:
                    socket.send_fds(control, [json.dumps(request).encode()], descriptors)
                    async with asyncio.timeout(_ANSWER_S):
                        data = await asyncio.get_running_loop().sock_recv(control, MAX_REQUEST_NBYTES)
            except TimeoutError:
                log.error("the template gives no sign of life: killed")
                if self._process is not None:
                    self._process.kill()
            except OSError as error:
                log.warning("the template does not answer: %s", error)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        if data:
            answer: dict[str, Any] = json.loads(data)
            self._handed.add(answer.get("pid", 0))
            return answer
        if self._told is told:  # from now on, wait for the next one
            self._told = asyncio.get_running_loop().create_future()
        raise WorkerStartError("the template died; another one is started", retryable=True)

    async def _keep(self) -> None:
        """Keep a template alive; a failure is told to whoever waits for it."""
        loop, backoff = asyncio.get_running_loop(), Backoff()
        while True:
            started_s = loop.time()
            try:
                status = await self._run_one()
            except OSError as error:  # no room for a process or its files now
                log.warning("the template cannot be started: %s", error)
                status = -1
            reap_strays()
            if status is None:
                continue
            if self._told.done():
                self._told = loop.create_future()
            delay_s = backoff.died(loop.time() - started_s)
            if backoff.hopeless(self._start_attempts) and status == 1:
                self._told.set_exception(
                    WorkerStartError(
                        f"the template failed {backoff.failures} times in a row; its log is {self._log_path}:\n"
                        f"{log_tail(self._log_path)}"
                    )
                )
                self._told.exception()  # it may be that nobody waits
                return
            log.warning("the template ended with status %s; starting another in %.1f s", status, delay_s)
            await asyncio.sleep(delay_s)

    async def _run_one(self) -> int | None:
        """One template's life; its exit status, None when it has become a worker."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        process: Process | None = None
        try:
            with theirs:
                command, descriptors = self._command(theirs.fileno()), [theirs.fileno()]
                process = await spawn(
                    command, environment=self._environment, log_path=str(self._log_path), descriptors=descriptors
                )
            self._process, self.pid, self._control = process, process.pid, ours
            data = await asyncio.get_running_loop().sock_recv(ours, MAX_REQUEST_NBYTES)
            if data and not self._told.done():
                self._told.set_result(json.loads(data))
            self._given.clear()
            lives = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._given.wait())]
            try:
                await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for life in lives:
                    life.cancel()
            if self._given.is_set():
                process = None
                return None
            return process.returncode
        finally:
            self._control = self._process = None
            if process is not None:
                await stop(process, _GRACE_S)
                await end_waiting(process.pid, self._handed)
            self._handed.clear()
            async with self._one_at_a_time:  # whoever waits for an answer sees the end of the template first
                ours.close()
