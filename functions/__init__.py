"""Functions, and the framework that runs them. Importing this loads no driver."""

from functions.context import Context
from functions.decorator import function
from functions.signals import Reject, Retry, Skip
from functions.spec import FunctionSpec

__all__ = ["Context", "FunctionSpec", "Reject", "Retry", "Skip", "function"]
