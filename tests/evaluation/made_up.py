"""A small benchmark of coloured clips, and ways to spoil it."""

from dataclasses import replace
from pathlib import Path

from centerclip.data import Benchmark, Clip
from tests.data.made_up import clip, table, text

COUNT = 9


def coloured(folder: Path) -> Benchmark:
    """Nine clips, one to three captions each, two with the same one. Also on the disk as a ``folder`` benchmark."""
    clips, rows = [], [("video", "caption", "split")]
    for number in range(COUNT):
        name = f"v{number}"
        captions = tuple(f"colour {number} way {way}" for way in range(number % 3)) + ("a plain picture",)[number < 7 :]
        captions = captions or (f"nothing but {number}",)
        path = clip(folder / f"{name}.mp4", colour=(28 * number, 255 - 28 * number, 60 * (number % 4)))
        clips.append(Clip(name, path, captions))
        rows += [(name, caption, "test") for caption in captions]
    text(folder / "captions.csv", table(rows))
    return Benchmark("folder", "test", tuple(clips))


def spoilt(benchmark: Benchmark, folder: Path) -> Benchmark:
    """The same with two more videos that cannot be read."""
    bad = [Clip(f"bad{n}", text(folder / f"bad{n}.mp4", "no video"), (f"bad {n}",)) for n in range(2)]
    return replace(benchmark, videos=(*benchmark.videos[:3], *bad, *benchmark.videos[3:]))
