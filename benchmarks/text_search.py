"""How what is shown and what is said and written are best brought into one list, on a collection with known answers.

    python benchmarks/text_search.py                                # the bundled clips and model
    python benchmarks/text_search.py FOLDER --model MODEL           # clips with a captions.csv beside the folder
    python benchmarks/text_search.py [FOLDER] --cost [--speech MODEL]   # what recognising text costs

Each clip gets subtitles and a name of made-up sentences (seeded). Every other one also talks about what
another clip shows, in the words of its caption: a search for that caption should find the clip that shows it, and a
search for what is said the clip that says it. Printed: the share of queries of each kind whose first hit is right, and
the mean reciprocal rank, for each way to merge the two lists. Claim: the way that is used (confidence) has the most
right first hits over all kinds of queries.

The cost is processor seconds for a minute of video: of clips, and of slides that stay for 20 seconds.
"""

import argparse
import csv
import random
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from centerclip import VideoIndex
from centerclip.bundled import DEMO, demo_clips
from centerclip.search import Hit
from centerclip.search.recognise import Recogniser, open_picture_text, open_speech
from centerclip.search.store import Segments, Video
from centerclip.search.text import MIN_SHARE, fuse
from centerclip.video import VideoError, probe

PEOPLE = """
accountant architect baker carpenter chemist dentist editor engineer farmer gardener historian judge
lawyer mechanic nurse painter pilot plumber publisher sculptor singer tailor teacher translator"""
DEEDS = """
approved borrowed cancelled corrected delivered described doubted explained finished forgot measured mentioned
misplaced ordered postponed praised promised repaired signed translated"""
THINGS = """
agenda balcony blueprint bridge budget cellar contract corridor diary elevator forecast furnace invoice ladder
lantern lease ledger manuscript mortgage orchard parcel passport pipeline recipe staircase tunnel"""
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June"
WHO, DID, WHAT, WHEN = (words.split() for words in (PEOPLE, DEEDS, THINGS, DAYS))
ABSENT = ("sofa", "violin")
LINES = 8  # of a clip
TOP = 20


@dataclass(frozen=True)
class Query:
    """What is asked for, the kind of question, the clip that answers it, and when, if it is said."""

    text: str
    kind: str
    clip: str
    time: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder with clips and a captions.csv beside it")
    parser.add_argument("--model", default=DEMO)
    parser.add_argument("--cost", action="store_true", help="measure what recognising text costs, and nothing else")
    parser.add_argument("--speech", metavar="MODEL", help="a Whisper model, to measure what transcribing costs")
    arguments = parser.parse_args()
    if arguments.cost:
        print_costs(arguments.folder or demo_clips(), arguments.speech)
        return
    with tempfile.TemporaryDirectory() as scratch:
        clips = captions_of(arguments.folder)
        queries = make_collection(clips, Path(scratch) / "clips")
        index = VideoIndex(Path(scratch) / "index", model=arguments.model)
        report = index.add(Path(scratch) / "clips")
        print(f"{report.added} clips, {len(queries)} queries, {index.status().model}\n")
        print_table(index, queries)


def print_costs(folder: Path, speech: str | None) -> None:
    """Processor seconds for a minute of video, of each recogniser."""
    recognisers: list[tuple[str, Recogniser]] = [("--read-text", open_picture_text())]
    recognisers += [(f"--transcribe {speech}", open_speech(speech))] if speech else []
    with tempfile.TemporaryDirectory() as scratch:
        slides = make_slides(Path(scratch) / "slides.mp4")
        clips = sorted(folder.glob("*.mp4"))[:10]
        for name, recogniser in recognisers:
            for kind, paths in (("clips", clips), ("slides", [slides])):
                seconds = length = 0.0
                for path in paths:
                    info = probe(path)
                    starts = np.arange(0.0, info.duration, 3.0, dtype=np.float32)
                    segments = Segments(starts, starts + 3, np.zeros((len(starts), 1), np.float32))
                    began = time.process_time()
                    recogniser(str(path), Video("", info.duration, info.width, info.height, 0.0), segments)
                    seconds += time.process_time() - began
                    length += info.duration
                print(f"{name}, {kind}: {60 * seconds / length:.1f} s a minute of video")


def make_slides(path: Path) -> Path:
    """A minute of three slides, 1280 x 720."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuv420p"
        for number in range(3):
            image = Image.new("RGB", (1280, 720), "white")
            lines = [f"Slide {number}", *(f"The {WHO[n]} {DID[n]} the {WHAT[n + number]}" for n in range(8))]
            text = "\n".join(lines)
            ImageDraw.Draw(image).multiline_text((60, 40), text, fill="black", font=ImageFont.load_default(40))
            for _ in range(100):
                container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode(None))
    return path


def captions_of(folder: Path | None) -> dict[Path, list[str]]:
    """The clips with their captions."""
    captions: dict[Path, list[str]] = defaultdict(list)
    if folder is None:
        with (demo_clips() / "captions.csv").open(encoding="utf-8") as rows:
            for row in csv.DictReader(rows):
                captions[demo_clips() / f"{row['video']}.mp4"].append(row["caption"])
        return captions
    with (folder.resolve().parent / "captions.csv").open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            captions[folder / Path(row["file"]).name] += [row["caption"]]
    return captions


def make_collection(clips: dict[Path, list[str]], folder: Path) -> list[Query]:
    """Copy the clips with subtitles and names of made-up sentences; the queries that they answer."""
    draw = random.Random(0)
    folder.mkdir()
    queries: list[Query] = []
    lengths = {}
    for path in clips:
        try:
            lengths[path] = probe(path).duration
        except VideoError:
            continue
    names = list(lengths)
    for number, path in enumerate(names):
        words = [draw.choice(WHO), draw.choice(WHAT), str(draw.randrange(1990, 2025))]
        clip = f"{'_'.join(words)}_{number:03}"
        shutil.copy(path, folder / f"{clip}{path.suffix}")
        said = [
            f"The {draw.choice(WHO)} {draw.choice(DID)} the {draw.choice(WHAT)} on {draw.choice(WHEN)}."
            for _ in range(LINES)
        ]
        if number % 2:  # talks about what the next clip shows
            said[0] = f"Do you remember how {clips[names[(number + 1) % len(names)]][0]}?"
        step = lengths[path] / LINES
        (folder / f"{clip}.srt").write_text(
            "\n\n".join(f"{n}\n{clock(n * step)} --> {clock((n + 0.9) * step)}\n{line}" for n, line in enumerate(said))
        )
        place = draw.randrange(1, LINES)
        _, who, did, _, what, _, when = said[place].rstrip(".").split()
        when_said = place * step
        queries += [
            Query(clips[path][-1], "shown", clip),
            Query(f"{who} {did} {what} {when}", "said, all words", clip, when_said),
            Query(f"what the {who}s {did} about {what}s on {when}", "said, inflected", clip, when_said),
            Query(f"{who} {did} {draw.choice(ABSENT)} {what} {when}", "said, a wrong word", clip, when_said),
            Query(f'"{did} the {what} on {when}"', "said, in quotes", clip, when_said),
            Query(" ".join(words), "name", clip),
        ]
    return queries


def clock(seconds: float) -> str:
    """As SRT writes times."""
    return f"00:{int(seconds // 60):02}:{int(seconds % 60):02},{int(1000 * (seconds % 1)):03}"


Merge = Callable[[list[Hit], list[Hit]], list[str]]


def reciprocal(constant: int) -> Merge:
    """Reciprocal rank fusion."""

    def merge(video: list[Hit], text: list[Hit]) -> list[str]:
        scores: dict[str, float] = defaultdict(float)
        for hits in (text, video):
            for rank, hit in enumerate(hits, 1):
                scores[hit.video_id] += 1 / (constant + rank)
        return sorted(scores, key=lambda video_id: -scores[video_id])

    return merge


def by_confidence(video: list[Hit], text: list[Hit]) -> list[str]:
    """The way that is used."""
    places = {hit.video_id: place for place, hit in enumerate(video)}
    same = {n: places[hit.video_id] for n, hit in enumerate(text) if hit.video_id in places}
    merged = fuse([hit.confidence for hit in video], [hit.confidence for hit in text], same)
    return [video[v].video_id if v is not None else text[t or 0].video_id for _, v, t in merged]


def text_first(video: list[Hit], text: list[Hit]) -> list[str]:
    """All that is said and written, then what is shown."""
    return list(dict.fromkeys(hit.video_id for hit in [*text, *video]))


METHODS: dict[str, Merge] = {
    "video alone": lambda video, text: [hit.video_id for hit in video],
    "text alone": lambda video, text: [hit.video_id for hit in text],
    "text first": text_first,
    "reciprocal ranks, 60": reciprocal(60),
    "reciprocal ranks, 5": reciprocal(5),
    "confidence": by_confidence,
}


def print_table(index: VideoIndex, queries: list[Query]) -> None:
    """Right first hits and mean reciprocal ranks, a row for each way and a column for each kind of query."""
    ids = {entry.title: entry.video_id for entry in index.videos()}
    ranks: dict[tuple[str, str], list[float]] = defaultdict(list)
    at_moment: dict[str, list[bool]] = defaultdict(list)
    for query in queries:
        video = index.search(query.text, where="video", top=TOP).hits
        everything = index.search(query.text, where="text", top=TOP).hits
        text = [hit for hit in everything if hit.score >= MIN_SHARE]
        for name, merge in METHODS.items():
            order = merge(video, text)
            right = ids[query.clip]
            ranks[name, query.kind].append(1 / (1 + order.index(right)) if right in order else 0.0)
        if query.time is not None:
            hits = [hit for hit in index.search(query.text, top=TOP) if hit.video_id == ids[query.clip]]
            at_moment[query.kind].append(bool(hits) and abs(hits[0].start - query.time) < 0.1)
    kinds = list(dict.fromkeys(query.kind for query in queries))
    print(f"{'first hit right, mean reciprocal rank':38}" + "".join(f"{kind:>20}" for kind in [*kinds, "mean"]))
    for name in METHODS:
        firsts, means = [], []
        for kind in kinds:
            values = ranks[name, kind]
            firsts.append(100 * sum(value == 1 for value in values) / len(values))
            means.append(sum(values) / len(values))
        firsts, means = [*firsts, sum(firsts) / len(firsts)], [*means, sum(means) / len(means)]
        cells = [f"{first:.0f} %, {mean:.3f}" for first, mean in zip(firsts, means, strict=True)]
        print(f"{name:38}" + "".join(f"{cell:>20}" for cell in cells))
    shares = {kind: sum(right) / len(right) for kind, right in at_moment.items()}
    print(f"{'at the right moment, with all':38}" + "".join(f"{_percent(shares.get(kind)):>20}" for kind in kinds))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
