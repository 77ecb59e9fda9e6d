"""The error tree: what can go wrong, what it is called on the wire, and whether trying again helps.

OmnibusError                     internal               everything of ours
├── ContractError                contract_invalid       what was sent is not what was agreed
│   ├── InvalidInputError        invalid_input          a value outside its contract
│   │   └── NothingToSayError    nothing_to_say         a text that no voice here can speak
│   ├── UnknownSchemaError       unknown_schema         a message of a schema or version we do not read
│   ├── PayloadTooLargeError     payload_too_large      more bytes than the bus takes in one message
│   ├── LimitExceededError       limit_exceeded         more pixels, seconds, frames or tokens than allowed
│   ├── ContextLengthError       context_length_exceeded  a prompt longer than the model's context
│   └── MediaError               media_invalid
│       ├── MediaUnreadableError media_unreadable       truncated, corrupt, empty
│       ├── MediaUnsupportedError media_unsupported     a kind of media nobody here decodes
│       ├── MediaTooLargeError   media_too_large        over a limit before it is decoded
│       └── MediaFetchError      media_fetch_failed     a URL that was refused or did not answer
├── BusError                     bus_failed
│   ├── BusUnavailableError      bus_unavailable        (retryable) no connection, no quorum, time-out
│   ├── ConflictError            conflict               (retryable) a compare-and-set lost its race
│   └── DeliveryExhaustedError   delivery_exhausted     delivered too often without an answer
├── StoreError                   store_failed
│   ├── StoreUnavailableError    store_unavailable      (retryable) the object store does not answer
│   ├── ObjectMissingError       object_missing         no such object
│   └── ObjectCorruptError       object_corrupt         bytes that do not match their digest
├── EngineError                  engine_failed
│   ├── ModelNotFoundError       model_not_found        no such model or version here
│   ├── ModelCorruptError        model_corrupt          a model file that is damaged or incomplete
│   ├── ModelUnsupportedError    model_unsupported      a model of a family, or with a feature, not built here
│   ├── ModelSourceError         model_source_failed    (retryable) a source that could not be read
│   ├── ProviderMissingError     provider_missing       an execution provider that is not installed
│   └── OverloadedError          overloaded             (retryable) no room; try again later
├── FunctionError                function_failed
│   ├── UnknownFunctionError     unknown_function
│   ├── UnknownPipelineError     unknown_pipeline
│   ├── PipelineInvalidError     pipeline_invalid       a pipeline file that does not compile
│   ├── DeadlineExceededError    deadline_exceeded
│   ├── CancelledRequestError    cancelled
│   └── HandlerError             handler_failed         a handler raised something that is not ours
├── PoolError                    pool_failed
│   ├── WorkerStartError         worker_start_failed
│   └── StackConfigError         stack_config           ports, folders, locks, settings
└── GatewayError                 gateway_failed
    ├── UnauthorizedError        unauthorized
    └── UnknownRequestError      unknown_request
"""

# One file over the usual length: the tree is one thing, and is looked for in one place.
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class OmnibusError(Exception):
    """Root of every error of this project.

    Attributes:
        code: Stable name on the wire.
        retryable: Whether the same call may succeed later.
        retry_after_s: A hint for when, in seconds.
        details: Data about the error: plain values only, they travel in events.
    """

    code: ClassVar[str] = "internal"
    retryable_by_default: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.retry_after_s = retry_after_s
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the details across processes: Exception pickles positional arguments only."""
        return (_rebuild, (type(self), self.message, self.retryable, self.retry_after_s, self.details))


def _rebuild(
    kind: type[OmnibusError], message: str, retryable: bool, retry_after_s: float | None, details: dict[str, Any]
) -> OmnibusError:
    return kind(message, retryable=retryable, retry_after_s=retry_after_s, **details)


class ContractError(OmnibusError):
    """What was sent is not what was agreed."""

    code = "contract_invalid"


class InvalidInputError(ContractError):
    """A value outside its contract."""

    code = "invalid_input"


class NothingToSayError(InvalidInputError):
    """A text that no voice here can speak."""

    code = "nothing_to_say"


class UnknownSchemaError(ContractError):
    """A message of a schema or version that this build does not read."""

    code = "unknown_schema"


class PayloadTooLargeError(ContractError):
    """More bytes than the bus takes in one message; never retried."""

    code = "payload_too_large"


class LimitExceededError(ContractError):
    """More pixels, seconds, frames or tokens than allowed."""

    code = "limit_exceeded"


class ContextLengthError(ContractError):
    """A prompt longer than the model's context."""

    code = "context_length_exceeded"


class MediaError(ContractError):
    """Media that cannot be used."""

    code = "media_invalid"


class MediaUnreadableError(MediaError):
    """Truncated, corrupt or empty media."""

    code = "media_unreadable"


class MediaUnsupportedError(MediaError):
    """A kind of media that nobody here decodes."""

    code = "media_unsupported"


class MediaTooLargeError(MediaError):
    """Media over a limit, refused before it is decoded."""

    code = "media_too_large"


class MediaFetchError(MediaError):
    """A media URL that was refused or did not answer."""

    code = "media_fetch_failed"


class BusError(OmnibusError):
    """The event bus failed."""

    code = "bus_failed"


class BusUnavailableError(BusError):
    """No connection, no quorum or no answer in time."""

    code = "bus_unavailable"
    retryable_by_default = True


class ConflictError(BusError):
    """A compare-and-set lost its race."""

    code = "conflict"
    retryable_by_default = True


class DeliveryExhaustedError(BusError):
    """A message delivered too often without an answer."""

    code = "delivery_exhausted"


class StoreError(OmnibusError):
    """The object store or the tensor plane failed."""

    code = "store_failed"


class StoreUnavailableError(StoreError):
    """The object store does not answer."""

    code = "store_unavailable"
    retryable_by_default = True


class ObjectMissingError(StoreError):
    """No such object."""

    code = "object_missing"


class ObjectCorruptError(StoreError):
    """Bytes that do not match their digest."""

    code = "object_corrupt"


class EngineError(OmnibusError):
    """The runtime failed."""

    code = "engine_failed"


class ModelNotFoundError(EngineError):
    """No such model or version here."""

    code = "model_not_found"


class ModelCorruptError(EngineError):
    """A model file that is damaged or incomplete."""

    code = "model_corrupt"


class ModelUnsupportedError(EngineError):
    """A model of a family, or with a feature, that is not built here."""

    code = "model_unsupported"


class ModelTooLargeError(EngineError):
    """A model that needs more memory than all models of its device may take together; it never fits."""

    code = "model_too_large"


class ModelSourceError(EngineError):
    """A model source that could not be read."""

    code = "model_source_failed"
    retryable_by_default = True


class ProviderMissingError(EngineError):
    """An execution provider that is not installed here."""

    code = "provider_missing"


class OverloadedError(EngineError):
    """No room now; the same call may succeed later."""

    code = "overloaded"
    retryable_by_default = True


class FunctionError(OmnibusError):
    """A function or pipeline failed."""

    code = "function_failed"


class UnknownFunctionError(FunctionError):
    """No function of that name."""

    code = "unknown_function"


class UnknownPipelineError(FunctionError):
    """No pipeline of that name."""

    code = "unknown_pipeline"


class PipelineInvalidError(FunctionError):
    """A pipeline file that does not compile."""

    code = "pipeline_invalid"


class DeadlineExceededError(FunctionError):
    """The request's deadline passed."""

    code = "deadline_exceeded"


class CancelledRequestError(FunctionError):
    """The request was cancelled."""

    code = "cancelled"


class HandlerError(FunctionError):
    """A handler raised something that is not one of ours."""

    code = "handler_failed"


class PoolError(OmnibusError):
    """A worker or the stack around it failed."""

    code = "pool_failed"


class WorkerStartError(PoolError):
    """A worker did not become ready."""

    code = "worker_start_failed"


class StackConfigError(PoolError):
    """A port, folder, lock or setting that does not work."""

    code = "stack_config"


class GatewayError(OmnibusError):
    """The gateway refused a request."""

    code = "gateway_failed"


class UnauthorizedError(GatewayError):
    """A key that is missing or wrong."""

    code = "unauthorized"


class UnknownRequestError(GatewayError):
    """No request of that id is known (any more)."""

    code = "unknown_request"


def all_errors() -> Iterator[type[OmnibusError]]:
    """Every class of the tree, root first."""
    waiting: list[type[OmnibusError]] = [OmnibusError]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting.extend(kind.__subclasses__())


def error_from_code(code: str, message: str, **kwargs: Any) -> OmnibusError:
    """The error that a wire code names; the root for a code of a newer version."""
    kind = next((kind for kind in all_errors() if kind.code == code), OmnibusError)
    return kind(message, **kwargs)
