"""Painted places: gradients, noise and simple structures, another background for every seed."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

Rng = np.random.Generator
Draw = ImageDraw.ImageDraw
Colour = tuple[float, float, float]


def background(place: str, width: int, height: int, rng: Rng) -> Image.Image:
    """An RGB image of a place, by its name in :data:`world.PLACES`."""
    image = _PAINTERS[place](width, height, rng)
    pixels = np.asarray(image, dtype=np.float32)
    light = rng.uniform(0.88, 1.1) * rng.uniform(0.95, 1.05, size=3)
    grain = rng.normal(0, rng.uniform(2, 6), size=(height, width, 1))
    return _to_image(pixels * light + grain + 8 * _smooth_noise(rng, width, height, 5)[..., None])


def _to_image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _canvas(pixels: np.ndarray) -> tuple[Image.Image, Draw]:
    image = _to_image(pixels)
    return image, ImageDraw.Draw(image)


def _smooth_noise(rng: Rng, width: int, height: int, cells: int, tall: float = 1.0) -> np.ndarray:
    """Smooth noise ``[height, width]`` from -1 to 1; ``tall`` above 1 stretches it upwards, below 1 sideways."""
    rows, columns = max(2, round(cells * height / width / tall)), max(2, cells)
    coarse = rng.uniform(-1, 1, size=(rows + 1, columns + 1)).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def _gradient(width: int, height: int, *stops: tuple[float, Colour]) -> np.ndarray:
    """Colours from top to bottom, ``[height, width, 3]``; each stop is (share of the height, colour)."""
    rows = np.linspace(0, 1, height)
    places, colours = [place for place, _ in stops], np.array([colour for _, colour in stops], dtype=np.float32)
    column = np.stack([np.interp(rows, places, colours[:, channel]) for channel in range(3)], axis=1)
    return np.repeat(column[:, None].astype(np.float32), width, axis=1)


def _ground(
    pixels: np.ndarray, rng: Rng, horizon: float, colour: Colour, rough: float, cells: int, tall: float
) -> None:
    """Paint everything below the horizon with a rough surface."""
    height, width, _ = pixels.shape
    top = round(horizon * height)
    shade = 1 + rough * _smooth_noise(rng, width, height - top, cells, tall)[..., None]
    depth = np.linspace(0.85, 1.1, height - top)[:, None, None]
    pixels[top:] = np.array(colour, dtype=np.float32) * shade * depth


def _hills(draw: Draw, rng: Rng, width: int, height: int, base: float, tall: float, colour: Colour) -> None:
    """A chain of rounded hills that stand on ``base``, a share of the height."""
    steps = np.arange(0, width + 8, 8)
    waves = sum(np.sin(steps * rng.uniform(0.01, 0.05) + rng.uniform(0, 6)) for _ in range(3)) / 3
    tops = height * (base - tall * (0.6 + 0.4 * waves))
    outline = [(float(x), float(y)) for x, y in zip(steps, tops, strict=True)]
    draw.polygon([*outline, (width + 8, height), (0, height)], fill=_rgb(colour))


def _around(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def _rgb(colour: Colour) -> tuple[int, int, int]:
    red, green, blue = (int(min(255, max(0, part))) for part in colour)
    return red, green, blue


def _scaled(colour: Colour, light: float) -> Colour:
    return colour[0] * light, colour[1] * light, colour[2] * light


def _vary(rng: Rng, colour: Colour, by: float = 18) -> Colour:
    red, green, blue = np.array(colour) + rng.uniform(-by, by, size=3)
    return float(red), float(green), float(blue)


def _sea(width: int, height: int, rng: Rng) -> Image.Image:
    horizon = rng.uniform(0.25, 0.4)
    pixels = _gradient(width, height, (0, _vary(rng, (120, 190, 240))), (horizon, (205, 230, 245)), (1, (0, 0, 0)))
    _ground(pixels, rng, horizon, _vary(rng, (25, 100, 175)), 0.3, 9, 0.12)
    image, draw = _canvas(pixels)
    for _ in range(40):  # crests of waves
        y = rng.uniform(horizon + 0.03, 1) * height
        x, length = rng.uniform(0, width), rng.uniform(4, 16) * (0.4 + y / height)
        draw.arc((x, y, x + length, y + length / 3), 190, 350, fill=(190, 220, 240))
    return image


def _city(width: int, height: int, rng: Rng) -> Image.Image:
    image, draw = _canvas(_gradient(width, height, (0, _vary(rng, (170, 195, 215))), (1, (225, 220, 210))))
    x = -10.0
    while x < width:
        wide, top = rng.uniform(0.14, 0.26) * height, rng.uniform(0.08, 0.5) * height
        tone = rng.uniform(80, 170)
        draw.rectangle((x, top, x + wide, height), fill=_rgb(_vary(rng, (tone, tone * 0.95, tone * 0.95), 14)))
        lit = _rgb((tone * 0.55, tone * 0.6, tone * 0.7)) if rng.random() < 0.6 else (240, 225, 160)
        step = max(7, int(wide / 4))
        for left in range(int(x) + 3, int(x + wide) - 5, step):
            for up in range(int(top) + 4, height - 8, step + 2):
                draw.rectangle((left, up, left + step // 2, up + step // 2 + 1), fill=lit)
        x += wide + rng.uniform(0, 3)
    draw.rectangle((0, 0.92 * height, width, height), fill=(95, 95, 100))
    return image


def _night(width: int, height: int, rng: Rng) -> Image.Image:
    image, draw = _canvas(_gradient(width, height, (0, _vary(rng, (8, 12, 45), 6)), (1, _vary(rng, (40, 45, 95), 10))))
    for _ in range(45):
        x, y, tone = rng.uniform(0, width), rng.uniform(0, 0.75 * height), int(rng.uniform(120, 255))
        draw.point((x, y), fill=(tone, tone, tone))
    radius, x, y = rng.uniform(0.08, 0.12) * height, rng.uniform(0.1, 0.9) * width, rng.uniform(0.12, 0.25) * height
    draw.ellipse(_around(x, y, radius), fill=(235, 232, 205))
    _hills(draw, rng, width, height, 0.95, 0.18, _vary(rng, (12, 14, 30), 5))
    return image


def _grass(width: int, height: int, rng: Rng) -> Image.Image:
    horizon = rng.uniform(0.18, 0.32)
    pixels = _gradient(width, height, (0, _vary(rng, (135, 200, 245))), (horizon, (215, 235, 245)), (1, (0, 0, 0)))
    green = _vary(rng, (85, 160, 55))
    _ground(pixels, rng, horizon, green, 0.25, 40, 2.0)
    image, draw = _canvas(pixels)
    for _ in range(90):  # blades
        x, y, tone = rng.uniform(0, width), rng.uniform(horizon + 0.05, 1) * height, rng.uniform(0.6, 1.3)
        blade = (x, y, x + rng.uniform(-2, 2), y - rng.uniform(3, 8))
        draw.line(blade, fill=_rgb(_scaled(green, tone)))
    for _ in range(8):  # daisies
        x, y = rng.uniform(0, width), rng.uniform(horizon + 0.1, 1) * height
        draw.ellipse(_around(x, y, 1.5), fill=(250, 245, 200))
    return image


def _desert(width: int, height: int, rng: Rng) -> Image.Image:
    stops = ((0, _vary(rng, (240, 190, 120))), (0.6, (250, 225, 170)), (1, (250, 225, 170)))
    image, draw = _canvas(_gradient(width, height, *stops))
    for base, tone in ((0.62, 0.8), (0.8, 0.92), (1.02, 1.04)):
        _hills(draw, rng, width, height, base, 0.22, _vary(rng, (225 * tone, 165 * tone, 90 * tone), 8))
    pixels = np.asarray(image, dtype=np.float32)
    return _to_image(pixels * (1 + 0.08 * _smooth_noise(rng, width, height, 7, 0.15)[..., None]))


def _snow(width: int, height: int, rng: Rng) -> Image.Image:
    stops = ((0, _vary(rng, (150, 175, 205))), (0.6, (215, 225, 235)), (1, (240, 244, 250)))
    image, draw = _canvas(_gradient(width, height, *stops))
    for _ in range(4):  # mountains with white tops
        x, top, half = rng.uniform(0, width), rng.uniform(0.12, 0.3) * height, rng.uniform(0.25, 0.4) * height
        foot = 0.62 * height
        draw.polygon([(x, top), (x - half, foot), (x + half, foot)], fill=_rgb(_vary(rng, (115, 130, 155), 10)))
        share = 0.4
        cap = top + share * (foot - top)
        draw.polygon([(x, top), (x - share * half, cap), (x, cap - 4), (x + share * half, cap)], fill=(245, 248, 252))
    _hills(draw, rng, width, height, 0.68, 0.1, (236, 241, 248))
    for _ in range(70):  # flakes
        x, y, radius = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.5, 1.6)
        draw.ellipse(_around(x, y, radius), fill=(252, 253, 255))
    return image


def _forest(width: int, height: int, rng: Rng) -> Image.Image:
    pixels = _gradient(width, height, (0, _vary(rng, (60, 100, 60), 10)), (0.7, (100, 130, 80)), (1, (60, 80, 40)))
    pixels *= 1 + 0.35 * _smooth_noise(rng, width, height, 22)[..., None]
    image, draw = _canvas(pixels)
    for _ in range(round(width / 16)):  # trunks and firs
        x, foot, tall = rng.uniform(0, width), rng.uniform(0.75, 0.98) * height, rng.uniform(0.45, 0.8) * height
        draw.rectangle((x - 2.5, foot - tall * 0.3, x + 2.5, foot), fill=_rgb(_vary(rng, (80, 55, 35), 10)))
        tone = _rgb(_vary(rng, (25, 85, 40), 16))
        for layer in range(3):
            top, half = foot - tall * (1 - 0.25 * layer), tall * (0.14 + 0.05 * layer)
            draw.polygon([(x, top), (x - half, top + tall * 0.38), (x + half, top + tall * 0.38)], fill=tone)
    return image


def _beach(width: int, height: int, rng: Rng) -> Image.Image:
    shore, horizon = rng.uniform(0.5, 0.6), rng.uniform(0.28, 0.36)
    stops = ((0, _vary(rng, (90, 180, 240))), (horizon, (190, 225, 245)), (horizon + 0.01, (40, 150, 190)))
    pixels = _gradient(width, height, *stops, (shore, (120, 215, 215)), (1, (0, 0, 0)))
    _ground(pixels, rng, shore, _vary(rng, (235, 205, 150), 10), 0.1, 60, 1.0)
    image, draw = _canvas(pixels)
    for x in range(-10, width, 14):  # foam
        y = shore * height + rng.uniform(-2, 2)
        draw.ellipse((x, y - 3, x + 18, y + 3), fill=(245, 250, 250))
    for _ in range(2):  # palm trees at the side
        x, foot, tall = rng.choice((0.06, 0.94)) * width + rng.uniform(-6, 6), 0.8 * height, 0.5 * height
        draw.line((x, foot, x + 6, foot - tall), fill=(120, 85, 50), width=4)
        for angle in (-160, -130, -50, -20, 10, 170):
            reach, bend = 0.16 * height, np.deg2rad(angle)
            tip = (x + 6 + reach * np.cos(bend), foot - tall + reach * np.sin(bend))
            draw.line((x + 6, foot - tall, *tip), fill=(45, 130, 60), width=4)
    return image


def _space(width: int, height: int, rng: Rng) -> Image.Image:
    glow = np.maximum(0, _smooth_noise(rng, width, height, 4))[..., None]
    tint = np.array([(120, 40, 140), (40, 60, 150), (140, 50, 70)][rng.integers(3)], dtype=np.float32)
    image, draw = _canvas(np.array((6, 5, 14), dtype=np.float32) + glow * tint * 0.8)
    for _ in range(110):
        x, y, tone = rng.uniform(0, width), rng.uniform(0, height), int(rng.uniform(130, 255))
        draw.point((x, y), fill=(tone, tone, tone))
    for _ in range(2):  # planets
        x, y, radius = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.07, 0.15) * height
        colour = [(200, 120, 70), (90, 150, 160), (180, 170, 120), (150, 90, 150)][rng.integers(4)]
        draw.ellipse(_around(x, y, radius), fill=_rgb(_vary(rng, colour)))
        if rng.random() < 0.5:
            box = (x - 1.8 * radius, y - 0.4 * radius, x + 1.8 * radius, y + 0.4 * radius)
            draw.ellipse(box, outline=(210, 200, 180), width=2)
    return image


def _kitchen(width: int, height: int, rng: Rng) -> Image.Image:
    tile = _vary(rng, [(225, 215, 195), (200, 220, 215), (230, 205, 200)][rng.integers(3)], 10)
    shade = 1 + 0.03 * _smooth_noise(rng, width, height, 10)[..., None]
    image, draw = _canvas(np.full((height, width, 3), tile, dtype=np.float32) * shade)
    step, line = int(rng.uniform(0.1, 0.14) * height), _rgb(_scaled(tile, 0.72))
    for x in range(0, width, step):
        draw.line((x, 0, x, height), fill=line)
    for y in range(0, height, step):
        draw.line((0, y, width, y), fill=line)
    counter = rng.uniform(0.68, 0.76) * height
    wood = _vary(rng, (150, 95, 55))
    light = _rgb((wood[0] * 1.25, wood[1] * 1.25, wood[2] * 1.2))
    draw.rectangle((0, counter, width, counter + 0.07 * height), fill=light)
    draw.rectangle((0, counter + 0.07 * height, width, height), fill=_rgb(wood))
    for x in range(int(rng.uniform(0, 20)), width, int(0.3 * height)):  # cupboard doors with knobs
        draw.line((x, counter + 0.07 * height, x, height), fill=_rgb(_scaled(wood, 0.6)), width=2)
        draw.ellipse((x + 5, counter + 0.15 * height, x + 9, counter + 0.15 * height + 4), fill=(225, 225, 225))
    return image


def _road(width: int, height: int, rng: Rng) -> Image.Image:
    horizon = rng.uniform(0.25, 0.35)
    pixels = _gradient(width, height, (0, _vary(rng, (165, 195, 220))), (horizon, (230, 230, 225)), (1, (0, 0, 0)))
    _ground(pixels, rng, horizon, _vary(rng, (150, 150, 95)), 0.2, 30, 1.0)
    image, draw = _canvas(pixels)
    top, middle, tone = horizon * height, width / 2 + rng.uniform(-0.1, 0.1) * width, rng.uniform(70, 100)
    foot = 0.62 * max(width, height)
    half, grey = 0.05 * width, _rgb((tone, tone, tone + 4))
    edges = [(middle - half, top), (middle + half, top), (middle + foot, height), (middle - foot, height)]
    draw.polygon(edges, fill=grey)
    for side in (-1, 1):
        line = (middle + side * 0.045 * width, top, middle + side * 0.9 * foot, height)
        draw.line(line, fill=(235, 235, 225), width=2)
    for dash in range(5):
        near, far = (dash + 0.6) / 5, dash / 5
        y0, y1 = top + far**1.6 * (height - top), top + near**1.6 * (height - top)
        half0, half1 = 1 + 4 * far, 1 + 4 * near
        dashed = [(middle - half0, y0), (middle + half0, y0), (middle + half1, y1), (middle - half1, y1)]
        draw.polygon(dashed, fill=(245, 210, 70))
    return image


def _underwater(width: int, height: int, rng: Rng) -> Image.Image:
    stops = ((0, _vary(rng, (60, 180, 200))), (0.8, _vary(rng, (10, 75, 120))), (1, (10, 60, 95)))
    pixels = _gradient(width, height, *stops)
    pixels *= 1 + 0.22 * _smooth_noise(rng, width, height, 7, 4.0)[..., None]  # shafts of light
    image, draw = _canvas(pixels)
    _hills(draw, rng, width, height, 1.0, 0.14, _vary(rng, (150, 140, 100), 12))
    for _ in range(12):  # weeds
        x, tall = rng.uniform(0, width), rng.uniform(0.12, 0.35) * height
        sway = [(x + 4 * np.sin(step * 1.3 + x), height - tall * step / 6) for step in range(7)]
        draw.line(sway, fill=_rgb(_vary(rng, (30, 120, 70), 20)), width=3)
    for _ in range(25):  # bubbles
        x, y, radius = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(1, 3.5)
        draw.ellipse(_around(x, y, radius), outline=(180, 225, 235))
    return image


_PAINTERS: dict[str, Callable[[int, int, Rng], Image.Image]] = {
    "sea": _sea, "city": _city, "night": _night, "grass": _grass, "desert": _desert, "snow": _snow, "forest": _forest,
    "beach": _beach, "space": _space, "kitchen": _kitchen, "road": _road, "underwater": _underwater,
}  # fmt: skip
