"""The template: a process that has imported everything and becomes workers by forking.

It holds no threads, no sockets but the one to its pool, no sessions and no device contexts: what a fork copies
would be broken in the child. A worker is forked twice over: the process in between ends at once, so that the pool,
which adopts orphans, is the worker's parent, and a worker outlives the template that it came from. Where a fork would
not be safe, the template becomes the next worker itself, and the pool starts another template.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from warmpool.adopted import COMM_PREFIX, waiting_name
from warmpool.process import die_with_parent, name_process

MAX_REQUEST_NBYTES = 65_536
"""Of one message between the pool and its template."""

_DESCRIPTORS = 4

_QUIET_S = 1.0
"""Nobody has asked for a worker for so long: those that were forked have had the processor for their first runs."""

_THREAD_SETTINGS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
)
ONE_THREAD = dict.fromkeys(_THREAD_SETTINGS, "1")
"""Environment that keeps libraries from starting threads when they are imported."""

Become = Callable[[Mapping[str, Any], socket.socket, Sequence[int]], int]
"""What a fork does with its life, from the request, its channel to the pool and further files; its exit status."""


def serve_template(control: socket.socket, preload: Callable[[], Mapping[str, Any]], become: Become) -> None:
    """Import everything, tell the pool, and fork a worker for each of its requests until it hangs up.

    Where a fork is not safe, become the first one that is asked for.

    Args:
        control: A SOCK_SEQPACKET socket of the pool's. A request is JSON with the files of the worker as ancillary
            data: its channel, its log, and whatever else `become` gets.
        preload: Imports; what it returns is told to the pool: under `unsafe`, why it should not fork.
        become: What a worker does.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the pool decides when this ends
    pool_pid, started_s = os.getppid(), time.monotonic()
    told = preload()
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page that is shared
    unsafe = told.get("unsafe") or why_unsafe()
    control.send(json.dumps({**told, "unsafe": unsafe, "imports_s": time.monotonic() - started_s}).encode())
    if unsafe:
        _become(control, become, pool_pid)
        return
    forks = Forks(control, become, pool_pid)
    while True:
        if not select.select([control], [], [], _QUIET_S)[0]:
            forks.one_ahead()
        data, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_NBYTES, _DESCRIPTORS)
        if not data:
            return
        try:
            answer: dict[str, Any] = {"pid": forks.give(data, descriptors)}
        except OSError as error:
            answer = {"error": f"the template cannot fork: {error.strerror or error}"}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        control.send(json.dumps(answer).encode())


def _become(control: socket.socket, become: Become, pool_pid: int) -> None:
    """Be a worker; return when the pool hangs up before it asks for one."""
    data, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_NBYTES, _DESCRIPTORS)
    if data:
        control.send(json.dumps({"pid": os.getpid(), "itself": True}).encode())
        control.close()
        _be_different()
        _to_the_end(lambda: _be(json.loads(data), descriptors, become, pool_pid))


def why_unsafe() -> str:
    """What makes forks of this process unsafe; empty when nothing does.

    A fork copies one thread: locks that others held stay locked in the child for good.
    """
    threads = Path("/proc/self/task")
    count = len(list(threads.iterdir())) if threads.is_dir() else 0
    return f"it has {count} threads after its imports; a package of the deployment starts them" if count > 1 else ""


class Forks:
    """The workers of a template, one of which is there before it is asked for.

    A fork takes as long as its tables of pages are, twice over; one that waits takes what it is to be from a socket.

    Args:
        control: The template's socket, which no worker has.
        become: What a worker does.
        pool_pid: Whose children they are to be.
    """

    def __init__(self, control: socket.socket, become: Become, pool_pid: int) -> None:
        self._control, self._become = control, become
        self._pid, self._pool_pid = os.getpid(), pool_pid
        self._ahead: tuple[int, socket.socket] | None = None

    def one_ahead(self) -> None:
        """Have a worker that waits for what it is to be; where there is no room for one, the next request tells."""
        if self._ahead is None:
            with suppress(OSError):
                self._ahead = self._fork()

    def give(self, request: bytes, descriptors: Sequence[int]) -> int:
        """The process id of a worker that lives by that request, with those files.

        Raises:
            OSError: There is no room for another process.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(OSError):  # it was killed meanwhile
                return self._told(ahead, request, descriptors)
        return self._told(self._fork(descriptors), request, descriptors)

    def _told(self, worker: tuple[int, socket.socket], request: bytes, descriptors: Sequence[int]) -> int:
        pid, line = worker
        with line:
            socket.send_fds(line, [request], descriptors)
        return pid

    def _fork(self, foreign: Sequence[int] = ()) -> tuple[int, socket.socket]:
        """A new process, adopted by the pool, and the socket on which it waits for what it is to be.

        Args:
            foreign: Files of ours that are not for it as they are.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe()
        try:
            between = os.fork()
        except OSError:
            for end in (ours, theirs):
                end.close()
            for descriptor in (reader, writer):
                os.close(descriptor)
            raise
        if between == 0:
            os.close(reader)
            ours.close()
            _fork_again(writer)
            self._control.close()
            for descriptor in foreign:
                os.close(descriptor)
            _live(theirs, self._become, self._pid, self._pool_pid)
        theirs.close()
        os.close(writer)
        try:
            told = os.read(reader, 32)
        finally:
            os.close(reader)
            os.waitpid(between, 0)
        if not told:
            ours.close()
            raise OSError("no process is left")
        return int(told), ours


def _fork_again(writer: int) -> None:
    """Return in the worker only; the process in between tells the worker's id and ends."""
    try:
        worker = os.fork()
        if worker:
            os.write(writer, str(worker).encode())
    except OSError:
        os._exit(1)
    if worker:
        os._exit(0)
    os.close(writer)


def _live(line: socket.socket, become: Become, template_pid: int, pool_pid: int) -> NoReturn:
    """Wait for what to be, and be it from here on."""

    def wait() -> int:
        name_process(waiting_name(template_pid))
        os.setsid()
        _be_different()
        data, descriptors, _, _ = socket.recv_fds(line, MAX_REQUEST_NBYTES, _DESCRIPTORS)
        line.close()
        return _be(json.loads(data), descriptors, become, pool_pid) if data else 0  # the template is gone

    _to_the_end(wait)


def _to_the_end(life: Callable[[], int]) -> NoReturn:
    """Do that, and end with the status that it returns."""
    status = 1
    try:
        status = life()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: the frames below are the template's, and a thread that hangs must not keep the process.
        os._exit(status)


def _be(request: Mapping[str, Any], descriptors: Sequence[int], become: Become, pool_pid: int) -> int:
    name_process(COMM_PREFIX + str(request.get("group", "worker")))
    channel, log, *others = descriptors
    _redirect(log)
    connection = socket.socket(fileno=channel)
    # The pool speaks when it knows the worker; the process in between has ended by then, and it is our parent.
    if not connection.recv(1, socket.MSG_PEEK):
        return 0
    die_with_parent(pool_pid)
    return become(request, connection, others)


def _redirect(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)


def _be_different() -> None:
    """What must not be the same in every child of a template."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    gc.enable()
