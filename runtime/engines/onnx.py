"""Sessions of ONNX Runtime: opened from a model file, fed with checked arrays, bound to memory that is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from typing import Any
from weakref import ref

import onnxruntime
from numpy.typing import NDArray

from bus.errors import EngineError, InvalidInputError, OmnibusError
from runtime.engines.binding import Binding, DeviceTensor, run_on_device
from runtime.engines.graph_cache import graph_cache
from runtime.engines.heap import give_back
from runtime.engines.identity import Identity, identify
from runtime.engines.once import Once
from runtime.engines.opening import Opening
from runtime.engines.ports import Port, check_declared, check_inputs
from runtime.engines.provider_options import ProviderConfig, profiles_of
from runtime.engines.providers import NAMES, Choice, choose, missing
from runtime.repository.ports import PORTS

__all__ = ["Array", "Binding", "DeviceTensor", "OnnxSession", "Port"]

log = logging.getLogger("omnibus.engine")

Array = NDArray[Any]

_PACK_UNASKED_S = 1.0
"""Nobody waited for a session that opened quickly: whoever comes later finds it at its full speed."""

_PACK_AFTER_S = 0.25
"""From the first run of a session that opened quickly: its answer has gone out by then, and has not waited."""


class OnnxSession:
    """A loaded model.

    A model of the repository is opened from its optimised graph, which the first process of a host saves: see
    `graph_cache`. A loose file is opened as it is.

    Args:
        path: The model; its external weights lie beside it.
        device: See `providers.choose`.
        fallback: Whether another provider may stand in for `device`; which ones were got is in `providers`.
        config: What the providers are told; None: the defaults, with TensorRT's shapes from the manifest.
        threads: Threads of one run on the CPU; 0: the cores that this process was given.
        spin: Whether idle threads spin between operators: faster alone, wasteful beside other work.
        spin_us: The longest that they spin, in microseconds; 0: the runtime's own limit.
        shrink: Whether memory is given back after each run; for inputs of very different sizes, where one large one
            would otherwise hold its memory for good.
        quick: Whether to open with the weights as they lie, in a fraction of the time, and bring them into the
            kernels' layout after the first run, or a second later where nobody runs it. Results agree as closely as
            sums in another order do; not for models that choose tokens from them.

    Raises:
        ProviderMissingError: The device is not installed or does not start, and nothing may stand in.
        ModelCorruptError: The file is missing, is no model that this runtime can open, or is not what its manifest
            says.
        InvalidInputError: Recorded runs are wanted of a model with free axes.
    """

    def __init__(
        self,
        path: Path,
        *,
        device: str = "auto",
        fallback: bool = False,
        config: ProviderConfig | None = None,
        threads: int = 0,
        spin: bool = True,
        spin_us: int = 0,
        shrink: bool = False,
        quick: bool = False,
    ) -> None:
        self._path = path
        self._identity = identify(path)
        self._opening = Opening(
            path=path,
            identity=self._identity,
            choice=choose(device, fallback=fallback),
            config=_with_manifest(config, self._identity),
            threads=threads,
            spin=spin,
            spin_us=spin_us,
        )
        quick = quick and self._opening.cacheable
        self._session = self._opening.open(packed=not quick)
        self._check_providers(self._opening.choice)
        self._shrinking = onnxruntime.RunOptions()
        arenas = "cpu:0" if self.device == "cpu" else "cpu:0;gpu:0"
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", arenas)
        self._run_options = self._shrinking if shrink else onnxruntime.RunOptions()
        self.inputs = {port.name: port for port in map(self._port, self._session.get_inputs())}
        self.outputs = {port.name: port for port in map(self._port, self._session.get_outputs())}
        self._check_ports()
        self._hurry = Event()
        self._packing = Once(_pack_later(self), name="omnibus-pack") if quick else None
        if self._packing is not None:
            unasked = Timer(_PACK_UNASKED_S, self._packing.start)
            unasked.daemon = True  # no reason to wait for it at the end
            unasked.start()

    def settle(self) -> None:
        """Wait until a session that opened quickly is at its full speed."""
        if self._packing is not None:
            self._hurry.set()
            self._packing.start()
            self._packing.join()

    @property
    def name(self) -> str:
        """What messages call it: `id@version/file` or, for a loose file, its name."""
        return self._path.name if self._identity is None else f"{self._identity.manifest.ref}/{self._path.name}"

    @property
    def providers(self) -> tuple[str, ...]:
        """What it really runs on, preferred first."""
        return tuple(self._session.get_providers())

    @property
    def device(self) -> str:
        """Where its tensors are: `cpu` or `cuda`."""
        return "cpu" if self.providers[:1] == (NAMES["cpu"],) else "cuda"

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, *, shrink: bool = False
    ) -> list[Array]:
        """Run once.

        Args:
            inputs: Arrays by input name; all of them.
            outputs: Names of the wanted outputs; None: all, in the model's order.
            shrink: Whether memory is given back after this run, also where it is not after every run.

        Raises:
            InvalidInputError: An input is missing, unknown, of another type or shape, or does not fit the others.
            EngineError: The runtime failed.
        """
        check_inputs(self.name, self.inputs, inputs)
        wanted = None if outputs is None else list(outputs)
        with self.translated():
            found = list(self._session.run(wanted, dict(inputs), self._shrinking if shrink else self._run_options))
        if self._packing is not None:
            self._packing.start()  # not before: it would take the processor from the first answer
        return found

    def run_on_device(
        self, inputs: Mapping[str, Array | DeviceTensor], outputs: Sequence[str] | None = None
    ) -> dict[str, DeviceTensor]:
        """Run once and leave the outputs where they are, for the next run to read.

        Args:
            inputs: Arrays, or tensors of an earlier run; all of them.
            outputs: Names of the wanted outputs; None: all.

        Raises:
            InvalidInputError: As `run`, and an output that the model has not.
            EngineError: The runtime failed.
        """
        wanted = tuple(self.outputs) if outputs is None else outputs
        return run_on_device(self, self._session, inputs, wanted, self.device)

    def bind(self) -> Binding:
        """A set of inputs and outputs that are bound once and run many times; settles first."""
        self.settle()
        return Binding(self, self._session)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the runtime raises into errors of ours.

        Raises:
            EngineError: The runtime failed.
        """
        try:
            yield
        except OmnibusError:
            raise
        except Exception as error:  # the driver's exceptions have no common class
            raise EngineError(f"model {self.name} failed: {error}", model=self.name) from error

    def _pack(self) -> None:
        """Replace the session that opened quickly by one whose weights are in the kernels' layout."""
        try:
            self._session = self._opening.open()  # runs that have begun end on the one that they began with
        except EngineError as error:
            log.warning("%s stays as it was opened: %s", self.name, error)
        give_back()

    def _check_providers(self, choice: Choice) -> None:
        """A provider that is installed may still not start, for want of a driver or a device."""
        if NAMES[choice.providers[0]] in self.providers:
            return
        if choice.strict:
            raise missing(choice.wanted, "is installed but does not start; look for its driver and device")
        log.warning("%s: execution provider %r does not start; using %s", self.name, choice.wanted, self.providers)

    def _port(self, told: Any) -> Port:
        return Port.of(told, self.name)

    def _check_ports(self) -> None:
        if self._opening.config.captures and self.device != "cpu":
            free = sorted(one.name for one in self.inputs.values() if not all(isinstance(s, int) for s in one.shape))
            if free:
                raise InvalidInputError(f"model {self.name}: runs cannot be recorded, {', '.join(free)} has free axes")
        if self._identity is not None:
            manifest = self._identity.manifest
            ports = {**self.inputs, **self.outputs}
            check_declared(manifest.ref, manifest.parameters.get(PORTS, {}).get(self._path.name, {}), ports)


def _pack_later(session: OnnxSession) -> Callable[[], None]:
    """Has a session packed if it is still there then: who waits for it must not keep one that was closed."""
    known, hurry = ref(session), session._hurry

    def pack() -> None:
        hurry.wait(_PACK_AFTER_S)
        found = known()
        if found is not None:
            found._pack()

    return pack


def _with_manifest(config: ProviderConfig | None, identity: Identity | None) -> ProviderConfig:
    config, cache = config or ProviderConfig(), graph_cache()
    if identity is None:
        return config
    tensorrt, manifest = config.tensorrt, identity.manifest
    profiles = tensorrt.profiles or profiles_of(manifest.ref, manifest.parameters)
    folder = tensorrt.cache or (cache.engines(identity) if cache is not None else None)
    return replace(config, tensorrt=replace(tensorrt, profiles=profiles, cache=folder))
