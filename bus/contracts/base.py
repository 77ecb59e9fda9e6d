"""What every contract has in common: frozen, closed, named and versioned."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A message or a part of one.

    Fields are never removed and never change their meaning within a version; a new meaning is a new version.

    Attributes:
        schema_name: The name on the wire; empty for a part that never travels alone.
        schema_version: Counts from 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    schema_name: ClassVar[str] = ""
    schema_version: ClassVar[int] = 1
