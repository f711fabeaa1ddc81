"""``centerclip demo``: index the bundled clips and search them, without data, network or GPU."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .common import clock, progress, this_command

if TYPE_CHECKING:
    from ..search import Hit


QUERIES = (
    "a frog rises in the desert",
    "a sunflower at night",
    "a helicopter chases a rocket in the snow",
    "a kite in the city",
    "a banana disappears",
    "a tax declaration",
)
TOP = 3  # hits of each query


def demo(
    folder: Annotated[Path, Option("--output", "-o", help="Folder for the index and an image of the hits.")] = Path(
        "centerclip-demo"
    ),
) -> None:
    """Index about 60 bundled clips with the bundled model, search them, and show the hits with their times."""
    from rich.console import Console

    from ..bundled import DEMO, demo_clips
    from ..plots.hits import hits_sheet
    from ..search import VideoIndex

    console = Console(highlight=False, soft_wrap=True)
    clips = demo_clips()
    index = VideoIndex(folder / "index", model=DEMO)
    began = time.perf_counter()
    with progress("indexing") as bar:
        report = index.add(clips, on_progress=bar.indexing)
    count = len(index.videos())
    console.print(
        f"[bold]{count} clips[/] of MiniVTT, a generated world of drawn things; {report.added} of them indexed now "
        f"in {time.perf_counter() - began:.0f} s, on the CPU.\n"
    )
    rows: list[tuple[str, list[Hit], bool]] = []
    for query in QUERIES:
        began = time.perf_counter()
        hits = index.search(query, top=TOP)
        rows.append((query, list(hits), hits.convincing))
        note = "" if hits.likely else "   (not sure about these)"
        console.print(f"[bold]{query}[/]{note}  [dim]{1000 * (time.perf_counter() - began):.0f} ms[/]")
        for hit in hits:
            console.print(f"   {hit.score:.2f}  {hit.title}  {clock(hit.start)}-{clock(hit.end)}")
    image = folder / "hits.png"
    hits_sheet(rows).save(image)
    console.print(f"\nA frame of each hit is in [bold]{image}[/].")
    run, made = this_command(), shlex.quote(str(folder / "index"))
    console.print(
        "\nThis small model knows drawn things in drawn places; it has never seen a photo.\n\n"
        "Your own sentence on these clips, and the same on a web page:\n"
        f'  {run} search "a cat at night" --index {made}\n'
        f"  {run} serve --index {made}\n"
        "Your own videos, with a real CLIP (downloaded once):\n"
        f"  {run} index ~/Videos\n"
        f'  {run} search "a child blows out candles"'
    )
