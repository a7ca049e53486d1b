# SPDX-License-Identifier: Apache-2.0
"""Draws ticket.png, the picture that `./dev demo` reads: straight and tilted words on an uneven ground."""

from __future__ import annotations

import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 800, 460
# text, size, left, top, tilt in degrees, colour
WORDS = [
    ("MUSEUM OF MACHINES", 44, 60, 36, 0, (28, 40, 72)),
    ("Register hall, level 2", 30, 62, 108, 0, (60, 60, 60)),
    ("Admit one", 52, 470, 150, 9, (150, 30, 30)),
    ("Valid 21 Nov 2026", 28, 62, 178, 0, (40, 40, 40)),
    ("No. 0048-2217", 34, 62, 238, -3, (20, 70, 40)),
    ("adults 12.50 EUR", 28, 62, 314, 0, (40, 40, 40)),
    ("keep this ticket until you leave", 24, 62, 384, 0, (90, 90, 90)),
]


def ground() -> Image.Image:
    rows = np.linspace(0.0, 1.0, HEIGHT)[:, None, None]
    columns = np.linspace(0.0, 1.0, WIDTH)[None, :, None]
    colour = np.array([246, 240, 222]) - rows * [18, 22, 30] - columns * [10, 6, 0]
    # Coarse noise: it makes the ground uneven and still compresses.
    noise = np.random.default_rng(7).integers(-5, 6, (HEIGHT // 4, WIDTH // 4, 1))
    colour = colour + noise.repeat(4, 0).repeat(4, 1)
    return Image.fromarray(colour.clip(0, 255).astype(np.uint8))


def draw() -> Image.Image:
    picture = ground()
    for text, size, left, top, tilt, colour in WORDS:
        layer = Image.new("L", (WIDTH, HEIGHT), 0)
        ImageDraw.Draw(layer).text((left, top), text, fill=255, font=ImageFont.load_default(size))
        layer = layer.rotate(tilt, resample=Image.Resampling.BICUBIC, center=(left, top))
        picture.paste(Image.new("RGB", picture.size, colour), mask=layer)
    frame = ImageDraw.Draw(picture)
    frame.rectangle((16, 16, WIDTH - 17, HEIGHT - 17), outline=(28, 40, 72), width=3)
    return picture.quantize(64).convert("P")


if __name__ == "__main__":
    draw().save(pathlib.Path(__file__).parent / "ticket.png", optimize=True)
