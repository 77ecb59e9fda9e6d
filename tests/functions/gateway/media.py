"""Small media, made here."""

from __future__ import annotations

import base64
import io
import wave

import numpy as np
from PIL import Image


def png() -> bytes:
    """A red square of 8 × 8 pixels."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG")
    return file.getvalue()


def wav(seconds: float = 1.0, rate_hz: int = 8000) -> bytes:
    """A loud second, then silence."""
    times = np.arange(int(seconds * rate_hz)) / rate_hz
    tone = np.where(times < 1.0, np.sin(2 * np.pi * 440 * times), 0.0)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate_hz)
        written.writeframes((tone * 20000).astype("<i2").tobytes())
    return file.getvalue()


def text_of(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


def data_url(data: bytes, media_type: str) -> str:
    """A `data:` URL."""
    return f"data:{media_type};base64,{text_of(data)}"
