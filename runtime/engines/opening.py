"""From a model file to a session of ONNX Runtime, by way of the optimised graph where one is kept."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from bus.errors import ModelCorruptError
from runtime.engines.cores import threads_for
from runtime.engines.graph_cache import GraphKey, graph_cache
from runtime.engines.identity import Identity
from runtime.engines.prepared import prepare
from runtime.engines.processor import fingerprint
from runtime.engines.provider_options import ProviderConfig
from runtime.engines.providers import NAMES, Choice

log = logging.getLogger("omnibus.engine")

_AS_IT_IS = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a model file is opened.

    Attributes:
        path: The model.
        identity: Whose file it is; None: a loose file, opened as it is.
        choice: The providers.
        config: What they are told.
        threads: See `OnnxSession`.
        spin: See `OnnxSession`.
        spin_us: See `OnnxSession`.
    """

    path: Path
    identity: Identity | None
    choice: Choice
    config: ProviderConfig
    threads: int = 0
    spin: bool = True
    spin_us: int = 0

    @property
    def cacheable(self) -> bool:
        """Whether its optimised graph can be kept."""
        # Graphs for other providers hold their nodes; TensorRT keeps engines of its own.
        return self.identity is not None and self.choice.providers == ("cpu",) and graph_cache() is not None

    def open(self, *, packed: bool = True) -> onnxruntime.InferenceSession:
        """Open it: from the optimised graph where there is one or one can be made, else from the model itself.

        Args:
            packed: Whether weights are brought into the kernels' layout. It takes most of the time to open a model and
                makes the runs on few rows about twice as fast.

        Raises:
            ModelCorruptError: It is no model that this runtime can open.
        """
        if "tensorrt" in self.choice.providers and self.config.tensorrt.cache is not None:
            with suppress(OSError):  # then engines are built anew, which the provider tells
                self.config.tensorrt.cache.mkdir(parents=True, exist_ok=True)
        saved = self._saved()
        if saved is not None:
            options = self._options(packed)
            options.graph_optimization_level = _AS_IT_IS
            try:
                return self._session(saved, options)
            except ModelCorruptError as error:
                log.warning("the optimised graph of %s does not open and is removed: %s", self.path, error)
                self._discard()
        return self._session(self.path, self._options(packed))

    def _key(self) -> GraphKey | None:
        if self.identity is None or not self.cacheable:
            return None
        return GraphKey.of(self.identity, self.path, onnxruntime.__version__, "cpu", fingerprint())

    def _saved(self) -> Path | None:
        cache, key = graph_cache(), self._key()
        if cache is None or key is None:
            return None
        return cache.find(key) or cache.make(key, lambda folder: prepare(self.path, folder))

    def _discard(self) -> None:
        cache, key = graph_cache(), self._key()
        if cache is not None and key is not None:
            cache.discard(key)

    def _options(self, packed: bool) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads_for(self.threads)
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if self.spin else "0")
        if self.spin and self.spin_us:  # a runtime that does not know the entry ignores it
            options.add_session_config_entry("session.intra_op.spin_duration_us", str(self.spin_us))
        if not packed:
            options.add_session_config_entry("session.disable_prepacking", "1")
        return options

    def _session(self, path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        providers = [(NAMES[name], self.config.options(name)) for name in self.choice.providers]
        try:
            return onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # the driver's exceptions have no common class
            # Garbage in a message of its own makes a UnicodeError of it; what it has no class for is a RuntimeError.
            foreign = type(error).__module__.startswith("onnxruntime")
            if foreign or isinstance(error, OSError | UnicodeError | RuntimeError):
                raise ModelCorruptError(f"model {path} cannot be opened: {error}", file=str(path)) from error
            raise
