"""What a file is, told from its first bytes. Names and declared types are never believed."""

from __future__ import annotations

from dataclasses import dataclass

from bus.contracts import Modality

_IMAGE = frozenset({Modality.IMAGE})
_AUDIO = frozenset({Modality.AUDIO})
_FILM = frozenset({Modality.VIDEO, Modality.AUDIO})

HEAD_NBYTES = 4096
"""How much of a file is enough to tell."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A file format.

    Attributes:
        media_type: MIME type.
        modalities: What such a file can hold; a film's container may also hold sound alone.
        demuxer: FFmpeg's name for it, empty for images. Naming it keeps FFmpeg from guessing a playlist
            format, which would open whatever addresses the file lists.
    """

    media_type: str
    modalities: frozenset[Modality]
    demuxer: str = ""


_PREFIXES: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", Kind("image/png", _IMAGE)),
    (b"\xff\xd8\xff", Kind("image/jpeg", _IMAGE)),
    (b"GIF87a", Kind("image/gif", _IMAGE)),
    (b"GIF89a", Kind("image/gif", _IMAGE)),
    (b"BM", Kind("image/bmp", _IMAGE)),
    (b"II*\0", Kind("image/tiff", _IMAGE)),
    (b"MM\0*", Kind("image/tiff", _IMAGE)),
    (b"fLaC", Kind("audio/flac", _AUDIO, "flac")),
    (b"ID3", Kind("audio/mpeg", _AUDIO, "mp3")),
    (b".snd", Kind("audio/basic", _AUDIO, "au")),
    (b"caff", Kind("audio/x-caf", _AUDIO, "caf")),
    (b"#!AMR", Kind("audio/amr", _AUDIO, "amr")),
    (b"wvpk", Kind("audio/x-wavpack", _AUDIO, "wv")),
    (b"RF64", Kind("audio/wav", _AUDIO, "wav")),
    (b"FLV\x01", Kind("video/x-flv", _FILM, "flv")),
    (b"\x00\x00\x01\xba", Kind("video/mpeg", _FILM, "mpeg")),
    (bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), Kind("video/x-ms-asf", _FILM, "asf")),
)

_RIFF = {
    b"WAVE": Kind("audio/wav", _AUDIO, "wav"),
    b"AVI ": Kind("video/x-msvideo", _FILM, "avi"),
    b"WEBP": Kind("image/webp", _IMAGE),
}
_IFF = {b"AIFF": Kind("audio/aiff", _AUDIO, "aiff"), b"AIFC": Kind("audio/aiff", _AUDIO, "aiff")}
_AVIF = Kind("image/avif", _IMAGE)
_MP4 = Kind("video/mp4", _FILM, "mov")
_M4A = Kind("audio/mp4", _AUDIO, "mov")
_QUICKTIME = Kind("video/quicktime", _FILM, "mov")
_BRANDS = {b"avif": _AVIF, b"avis": _AVIF, b"M4A ": _M4A, b"M4B ": _M4A, b"qt  ": _QUICKTIME}
_HEIF = (b"heic", b"heix", b"hevc", b"mif1", b"msf1")
_MP3 = Kind("audio/mpeg", _AUDIO, "mp3")
_ADTS = Kind("audio/aac", _AUDIO, "aac")


def sniff(data: bytes) -> Kind | None:
    """The format of a file; None for one that nobody here decodes.

    Args:
        data: The file, or at least its first 4 KiB.
    """
    for prefix, kind in _PREFIXES:
        if data.startswith(prefix):
            return kind
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12])
    if data.startswith(b"FORM"):
        return _IFF.get(data[8:12])
    if data.startswith(b"OggS"):
        return _ogg(data)
    if data.startswith(b"\x1aE\xdf\xa3"):
        webm = b"webm" in data[:64]
        return Kind("video/webm" if webm else "video/x-matroska", _FILM, "matroska")
    return _iso_media(data) or _mpeg(data)


def _ogg(data: bytes) -> Kind:
    if b"\x80theora" in data[:HEAD_NBYTES]:
        return Kind("video/ogg", _FILM, "ogg")
    return Kind("audio/ogg", _AUDIO, "ogg")


def _iso_media(data: bytes) -> Kind | None:
    box, brand = data[4:8], data[8:12]
    if box == b"ftyp":
        return None if brand in _HEIF and b"avif" not in data[:64] else _BRANDS.get(brand, _still_or_film(data))
    # QuickTime files older than the brand box begin with the index, the data or padding.
    return _QUICKTIME if box in (b"moov", b"mdat", b"wide", b"free", b"skip") else None


def _still_or_film(data: bytes) -> Kind:
    return _AVIF if b"avif" in data[8:64] else _MP4


def _mpeg(data: bytes) -> Kind | None:
    if len(data) > 188 and data[0] == 0x47 and data[188] == 0x47:
        return Kind("video/mp2t", _FILM, "mpegts")
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE0 != 0xE0:
        return None
    layer, bitrate, rate = data[1] & 0x06, data[2] >> 4, (data[2] >> 2) & 3
    if layer == 0:
        return _ADTS if data[1] & 0xF0 == 0xF0 else None
    return None if bitrate == 15 or rate == 3 else _MP3
