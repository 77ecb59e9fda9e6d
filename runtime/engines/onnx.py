"""Sessions of ONNX Runtime: opened from a model file, fed with checked arrays, bound to memory that is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from bus.errors import EngineError, InvalidInputError, ModelCorruptError, OmnibusError
from runtime.engines.binding import Binding, DeviceTensor, run_on_device
from runtime.engines.cores import threads_for
from runtime.engines.graph_cache import GraphKey, graph_cache
from runtime.engines.identity import Identity, identify
from runtime.engines.ports import Port, check_declared, check_inputs
from runtime.engines.prepared import prepare
from runtime.engines.processor import fingerprint
from runtime.engines.provider_options import ProviderConfig, profiles_of
from runtime.engines.providers import NAMES, Choice, choose, missing

__all__ = ["Array", "Binding", "DeviceTensor", "OnnxSession", "Port"]

log = logging.getLogger("omnibus.engine")

Array = NDArray[Any]

_OPTIMISED = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


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
    ) -> None:
        self._path = path
        self._choice = choose(device, fallback=fallback)
        self._identity = identify(path)
        self._config = _with_manifest(config, self._identity)
        self._threads, self._spin, self._spin_us = threads, spin, spin_us
        self._session = self._open()
        self._check_providers(self._choice)
        self._run_options = onnxruntime.RunOptions()
        if shrink:
            arenas = "cpu:0" if self.device == "cpu" else "cpu:0;gpu:0"
            self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", arenas)
        self.inputs = {port.name: port for port in map(self._port, self._session.get_inputs())}
        self.outputs = {port.name: port for port in map(self._port, self._session.get_outputs())}
        self._check_ports()

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

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """Run once.

        Args:
            inputs: Arrays by input name; all of them.
            outputs: Names of the wanted outputs; None: all, in the model's order.

        Raises:
            InvalidInputError: An input is missing, unknown, of another type or shape, or does not fit the others.
            EngineError: The runtime failed.
        """
        check_inputs(self.name, self.inputs, inputs)
        with self.translated():
            return list(self._session.run(None if outputs is None else list(outputs), dict(inputs), self._run_options))

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
        """A set of inputs and outputs that are bound once and run many times."""
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

    def _open(self) -> onnxruntime.InferenceSession:
        """From the optimised graph where there is one, else from the model itself."""
        cache, key = graph_cache(), self._key()
        saved = None
        if cache is not None and key is not None:
            saved = cache.find(key) or cache.make(key, lambda folder: prepare(self._path, folder))
        if cache is not None and key is not None and saved is not None:
            options = self._options()
            options.graph_optimization_level = _OPTIMISED
            try:
                return self._driver(saved, options)
            except ModelCorruptError as error:
                log.warning("the optimised graph of %s does not open and is removed: %s", self.name, error)
                cache.discard(key)
        return self._driver(self._path, self._options())

    def _key(self) -> GraphKey | None:
        # Graphs for other providers hold their nodes; TensorRT keeps engines of its own.
        if self._identity is None or self._choice.providers != ("cpu",):
            return None
        return GraphKey.of(self._identity, self._path, onnxruntime.__version__, "cpu", fingerprint())

    def _options(self) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads_for(self._threads)
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if self._spin else "0")
        if self._spin and self._spin_us:  # a runtime that does not know the entry ignores it
            options.add_session_config_entry("session.intra_op.spin_duration_us", str(self._spin_us))
        return options

    def _driver(self, path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        providers = [(NAMES[name], self._config.options(name)) for name in self._choice.providers]
        try:
            return onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # the driver's exceptions have no common class
            if type(error).__module__.startswith("onnxruntime") or isinstance(error, OSError):
                raise ModelCorruptError(f"model {path} cannot be opened: {error}", file=str(path)) from error
            raise

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
        if self._config.captures and self.device != "cpu":
            free = sorted(one.name for one in self.inputs.values() if not all(isinstance(s, int) for s in one.shape))
            if free:
                raise InvalidInputError(f"model {self.name}: runs cannot be recorded, {', '.join(free)} has free axes")
        if self._identity is not None:
            manifest = self._identity.manifest
            ports = {**self.inputs, **self.outputs}
            check_declared(manifest.ref, manifest.parameters.get("ports", {}).get(self._path.name, {}), ports)


def _with_manifest(config: ProviderConfig | None, identity: Identity | None) -> ProviderConfig:
    config, cache = config or ProviderConfig(), graph_cache()
    if identity is None:
        return config
    tensorrt, manifest = config.tensorrt, identity.manifest
    profiles = tensorrt.profiles or profiles_of(manifest.ref, manifest.parameters)
    folder = tensorrt.cache or (cache.engines(identity) if cache is not None else None)
    return replace(config, tensorrt=replace(tensorrt, profiles=profiles, cache=folder))
