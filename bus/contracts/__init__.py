"""What travels on the bus. Importing this loads no driver."""

from bus.contracts.base import Contract
from bus.contracts.capacity import Capacity, GroupCapacity
from bus.contracts.event import (
    CacheState,
    DeadLetter,
    ErrorRecord,
    Event,
    Lane,
    ReplyFormat,
    Request,
    Result,
    ResultStatus,
    Span,
    Suspicion,
    TokenChunk,
)
from bus.contracts.lease import FunctionStatus, Lease, Tier, WorkerState
from bus.contracts.manifest import ModelFile, ModelManifest
from bus.contracts.media import MediaLimits, MediaRef, MediaSource, Modality
from bus.contracts.tensor import INLINE_MAX_NBYTES, TensorRef
from bus.contracts.tokens import FramePiece, TokenBlock

__all__ = [
    "INLINE_MAX_NBYTES",
    "CacheState",
    "Capacity",
    "Contract",
    "DeadLetter",
    "ErrorRecord",
    "Event",
    "FramePiece",
    "FunctionStatus",
    "GroupCapacity",
    "Lane",
    "Lease",
    "MediaLimits",
    "MediaRef",
    "MediaSource",
    "Modality",
    "ModelFile",
    "ModelManifest",
    "ReplyFormat",
    "Request",
    "Result",
    "ResultStatus",
    "Span",
    "Suspicion",
    "TensorRef",
    "Tier",
    "TokenBlock",
    "TokenChunk",
    "WorkerState",
]
