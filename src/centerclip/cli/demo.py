"""``centerclip demo``: index the bundled clips of real pictures and search them, without data, network or GPU."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .common import clock, progress, this_command

if TYPE_CHECKING:
    from ..search import Hit


QUERIES = (
    "a polar bear walks on snow",
    "Japanese drummers at a festival at night",
    "a cup of coffee on a table",
    "two dogs look out of a window",
    "a football match",  # in no clip
)
TOP = 3  # hits of each query


def demo(
    folder: Annotated[Path, Option("--output", "-o", help="Folder for the index and an image of the hits.")] = Path(
        "centerclip-demo"
    ),
) -> None:
    """Index and search 36 bundled clips.

    They show photographs and old films. The small model is used; nothing is downloaded.
    """
    from rich.console import Console

    from ..bundled import SMALL, film_clips
    from ..plots.hits import hits_sheet, print_thumbnails
    from ..search import OtherSettings, VideoIndex

    console = Console(highlight=False, soft_wrap=True)
    index = VideoIndex(folder / "index", model=SMALL)
    began = time.perf_counter()
    with progress("indexing") as bar:
        report = index.add(film_clips(), on_progress=bar.indexing)
        try:
            index.search(QUERIES[0])
        except OtherSettings:  # the folder is of an earlier version's model
            report = index.add(film_clips(), reindex=True, on_progress=bar.indexing)
    console.print(
        f"[bold]{len(index.videos())} clips[/] of photographs and old films; {report.added} of them indexed now in "
        f"{time.perf_counter() - began:.0f} s, on the CPU, with the small model. Their names say nothing about what "
        "they show.\n"
    )
    rows: list[tuple[str, list[Hit], bool]] = []
    for query in QUERIES:
        began = time.perf_counter()
        hits = index.search(query, top=TOP)
        rows.append((query, list(hits), hits.convincing))
        note = "" if hits.convincing else "   probably in none of these clips; the closest ones:"
        console.print(f"[bold]{query}[/]{note}  [dim]{1000 * (time.perf_counter() - began):.0f} ms[/]")
        for rank, hit in enumerate(hits):
            line = f"   {hit.score:.2f}  {hit.title}  {clock(hit.start)}-{clock(hit.end)}"
            console.print(line, style=None if rank < hits.likely else "dim")
        if console.is_terminal and console.color_system == "truecolor":
            print_thumbnails(hits.hits)
    image = folder / "hits.png"
    hits_sheet(rows).save(image)
    run, made = this_command(), shlex.quote(str(folder / "index"))
    console.print(
        f"\nA frame of each hit is in [bold]{image}[/].\n"
        "Your own sentence on these clips, and the same on a web page:\n"
        f'  {run} search "a cat with a ball of yarn" --index {made}\n'
        f"  {run} serve --index {made}\n"
        "Your own videos:\n"
        f"  {run} index ~/Videos"
    )
