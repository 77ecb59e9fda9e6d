"""Pictures of every kind that people send, against what was drawn."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from bus.contracts import MediaLimits
from bus.errors import MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError
from runtime.media.images import decode
from tests.made.pictures import BLUE, GREEN, RED, WHITE, corner_colours, corners, huge_png, saved

LIMITS = MediaLimits()
UPRIGHT = [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF"])
def test_every_format_gives_the_drawn_picture(kind: str) -> None:
    (picture,) = decode(saved(corners(), kind), LIMITS)
    assert picture.image.mode == "RGB"
    assert (picture.width, picture.height) == (320, 240)
    assert corner_colours(picture.image) == UPRIGHT


# EXIF 2.3, table 6: what has to be done to the stored picture to show it; undone here by numpy.
STORED = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: np.rot90(pixels, 1),
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: np.rot90(pixels, -1),
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("shortest_side", [None, 64])
def test_exif_rotation_is_undone(orientation: int, shortest_side: int | None) -> None:
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](np.asarray(corners()))))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(stored, "JPEG", exif=exif, quality=95)
    (picture,) = decode(data, LIMITS, shortest_side=shortest_side)
    assert corner_colours(picture.image) == UPRIGHT
    assert (picture.width, picture.height) == (320, 240)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")  # Pillow tells; the picture is what counts
def test_broken_exif_does_not_take_the_picture_away() -> None:
    data = saved(corners(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 20)
    (picture,) = decode(data, LIMITS)
    assert corner_colours(picture.image) == UPRIGHT


def test_big_photo_is_shrunk_while_decoding_and_keeps_its_true_size() -> None:
    (picture,) = decode(saved(corners(2400, 1800), "JPEG"), LIMITS, shortest_side=512)
    assert (picture.width, picture.height) == (2400, 1800)
    assert 512 <= min(picture.image.size) < 1800
    assert corner_colours(picture.image) == UPRIGHT


def test_cmyk_print_photo_keeps_its_colours() -> None:
    (picture,) = decode(saved(corners().convert("CMYK"), "JPEG", quality=95), LIMITS)
    assert corner_colours(picture.image) == UPRIGHT


def test_sixteen_bit_grey_is_scaled_and_not_clipped() -> None:
    levels = np.linspace(0, 65535, 256, dtype=np.uint16)[None].repeat(8, 0)
    (picture,) = decode(saved(Image.fromarray(levels), "PNG"), LIMITS)
    expected = levels.astype(np.float64) / 257
    assert np.abs(np.asarray(picture.image)[..., 0] - expected).max() <= 0.5


def test_floating_point_tiff_is_scaled() -> None:
    values = np.linspace(-3.0, 5.0, 64, dtype=np.float32)[None].repeat(4, 0)
    (picture,) = decode(saved(Image.fromarray(values), "TIFF"), LIMITS)
    row = np.asarray(picture.image)[0, :, 1].astype(int)
    assert (row[0], row[-1]) == (0, 255)
    assert abs(int(row[32]) - 129) <= 2


def test_transparent_places_show_the_page_behind_them() -> None:
    layer = corners().convert("RGBA")
    layer.paste((0, 0, 0, 0), (0, 0, 160, 120))
    (picture,) = decode(saved(layer, "PNG"), LIMITS)
    assert corner_colours(picture.image) == [WHITE, GREEN, BLUE, WHITE]


def test_palette_with_a_transparent_colour() -> None:
    image = Image.new("P", (40, 40), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.paste(1, (20, 0, 40, 40))
    (picture,) = decode(saved(image, "PNG", transparency=0), LIMITS)
    assert corner_colours(picture.image) == [WHITE, RED, WHITE, RED]


def animation(count: int) -> bytes:
    frames = [Image.new("RGB", (32, 32), (index * 20, 0, 0)) for index in range(count)]
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=200)


def test_an_animation_gives_its_first_frame() -> None:
    (picture,) = decode(animation(10), LIMITS)
    assert picture.image.getpixel((5, 5)) == (0, 0, 0)
    assert picture.time_s is None


def test_an_animation_is_sampled_over_its_length_with_times() -> None:
    pictures = decode(animation(10), LIMITS, frames=4)
    reds = [np.asarray(picture.image)[5, 5, 0] for picture in pictures]
    assert reds == [0, 60, 120, 180]
    assert [picture.time_s for picture in pictures] == pytest.approx([0.0, 0.6, 1.2, 1.8])


def test_an_animation_never_gives_more_frames_than_the_limits_say() -> None:
    assert len(decode(animation(10), MediaLimits(max_frames=3), frames=10)) == 3


def test_huge_png_is_refused_by_its_header_without_decoding() -> None:
    data = huge_png()
    assert len(data) < 200_000
    tracemalloc.start()
    with pytest.raises(MediaTooLargeError, match="30000 × 30000") as caught:
        decode(data, LIMITS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
    assert caught.value.details["width"] == 30_000


def test_animation_of_too_many_pixels_in_all_is_refused() -> None:
    with pytest.raises(MediaTooLargeError, match="10 frames"):
        decode(animation(10), MediaLimits(max_pixels=1100, max_frames=2), frames=2)


def test_text_chunk_bomb_is_refused() -> None:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_itxt("comment", "0" * 80_000_000, zip=True)
    data = saved(corners(), "PNG", pnginfo=info)
    with pytest.raises(MediaUnreadableError):
        decode(data, LIMITS)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF"])
@pytest.mark.parametrize("kept", [0.2, 0.6, 0.9])
def test_truncated_pictures_are_typed_errors(kind: str, kept: float) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (200, 200, 3), np.uint8))
    data = saved(noise, kind)
    with pytest.raises((MediaUnreadableError, MediaUnsupportedError)):
        decode(data[: int(len(data) * kept)], LIMITS)


def test_empty_file_is_unreadable() -> None:
    with pytest.raises(MediaUnreadableError, match="0 bytes"):
        decode(b"", LIMITS)


@pytest.mark.parametrize(
    "data", [b"hello, this is text", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"%PDF-1.7\n", b"\0" * 99]
)
def test_what_is_no_picture_is_unsupported(data: bytes) -> None:
    with pytest.raises(MediaUnsupportedError):
        decode(data, LIMITS)


def test_every_single_byte_flip_in_the_head_is_answered_or_a_typed_error() -> None:
    data = bytearray(saved(corners(32, 32), "PNG"))
    for index in range(60):
        flipped = bytes(data[:index]) + bytes([data[index] ^ 0xFF]) + bytes(data[index + 1 :])
        try:
            decode(flipped, LIMITS)
        except (MediaUnreadableError, MediaUnsupportedError, MediaTooLargeError):
            continue


def test_pillow_reads_what_the_huge_png_says_it_is() -> None:
    with Image.open(io.BytesIO(huge_png(64, 64))) as image:
        image.load()
        assert image.size == (64, 64)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_no_numbers_are_black_or_white(value: float) -> None:
    values = np.linspace(-2.0, 6.0, 64 * 64, dtype=np.float32).reshape(64, 64)
    values[0, 0] = value
    (picture,) = decode(saved(Image.fromarray(values), "TIFF"), LIMITS)
    assert picture.image.getpixel((0, 0)) == ((255,) * 3 if value == np.inf else (0,) * 3)
    assert picture.image.getpixel((63, 63)) == (255,) * 3
    (picture,) = decode(saved(Image.fromarray(np.full((8, 8), value, np.float32)), "TIFF"), LIMITS)
    assert picture.image.size == (8, 8)


def test_deep_grey_larger_than_a_band_is_scaled_in_every_row() -> None:
    values = np.broadcast_to(np.arange(0, 65_536, 32, dtype=np.uint16), (1500, 2048))
    (picture,) = decode(saved(Image.fromarray(np.ascontiguousarray(values)), "PNG"), LIMITS)
    expected = (values / 257.0).round().astype(np.uint8)  # 65,535 is 255
    assert (np.asarray(picture.image)[..., 0] == expected).all()
