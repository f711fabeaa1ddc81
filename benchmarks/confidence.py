"""How far the grades of hits can be trusted: queries about what is in a collection, and about what is not.

    python benchmarks/confidence.py FOLDER --model MODEL [--index INDEX]
    python benchmarks/confidence.py FOLDER --model MODEL --queries recipes/small/queries.json
    python benchmarks/confidence.py --demo          # the bundled clips and model of MiniVTT

FOLDER holds the 63 clips that SHORT and LONG name. The cuts were chosen on half of the queries of each kind, though
with an eye on the other half, which is reported. Claims, for FOLDER: 95 % of the right first hits are "sure" or
"maybe"; at most 15 % of the absent things have a "sure" first hit. One cut for both cannot be had: the second table
tries what the literature offers, each with the cut that 95 % of the right first hits of the first half pass. The demo's
model is small, and its absent things are drawn, move and stand in places like those that are there: many pass.

``--queries`` names a file of other ones (``present``: ``query``, ``kind`` and the ``clips`` that show it; ``absent``:
``query`` and ``kind``) and prints recall beside the grades. Those of recipes/small are short: things, actions and
places, written from the captions and from looking at the clips, before any model was asked. Nothing was chosen on them.
A query is answered when one of the clips that show it is among the first.
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from centerclip import VideoIndex
from centerclip.bundled import DEMO, demo_clips
from centerclip.data.minivtt.world import world
from centerclip.search.ranking import background_sentences
from centerclip.search.store import Floats

# What is asked for, and parts of the names of the clips that show it.
SHORT = {
    "black swan": "blackswan",
    "white swan": "white-swan",
    "camel": "camel",
    "elk in the snow": "deer",
    "fox": "fox",
    "monkey": "monkey",
    "cat": "5HAf TZ86 monkey",
    "piano": "TZ86",
    "horse": "zTn",
    "horse riding": "zTn",
    "skateboard": "skateboarding_dog",
    "dog": "skateboarding_dog v_ZNV",
    "sailboat": "boat",
    "Santa Claus": "santa",
    "snowboarding": "snowboard",
    "snowman": "sample_demo_16",
    "motorcycle": "zlmx klte",
    "jeep": "car-turn",
    "croissants": "1066674790",
    "an ant": "1066674802",
    "temple at sunset": "1066674784",
    "guitar": "PlayingGuitar",
    "drums": "sample_demo_22",
    "pineapple": "AJJ",
    "tortilla": "Je3V j2Dh",
    "bowl of rice": "0lh_ UXs3",
    "pacifier": "3qqE",
    "baby": "3qqE sample_demo_1. sample_demo_3",
    "baby with a book": "sample_demo_1.",
    "bell peppers": "sample_demo_9",
    "face paint": "halloween",
    "ballet dancer": "ballet",
    "basketball": "structuralize basketball dancing_example",
    "soccer ball": "SoccerJuggling",
    "baseball": "hitting_baseball",
    "weightlifting": "v_GGSY",
    "parking lot": "person-bicycle-car",
    "supermarket": "store-aisle",
    "hard hat": "worker-zone",
    "space telescope": "nasa",
    "Segway": "WUzg",
    "floral dress": "2430612",
    "potted plant": "realshort",
    "iron man suit": "IronMan",
    "bicycle": "bikes person-bicycle",
    "conveyor belt": "fruit-and-vegetable",
    "child on a scooter": "v_ZNV",
    "frying garlic": "WTf5",
    "fireplace": "sample_demo_3",
    "television": "5HAf",
    "staircase": "ballet",
    "desert road": "mini-cooper",
    "grated cheese": "Je3V",
    "sign language": "book",
    "car": "mini-cooper car-turn person-bicycle SchoolRules bikes",
    "crown of roses": "halloween",
    "barbell": "v_GGSY",
    "sunset": "1066674784",
    "drummer": "sample_demo_22",
    "playing in the snow": "sample_demo_16",
}
LONG = {
    "a camel standing behind a fence": "camel",
    "a small boat with a white sail on the water": "boat",
    "someone puts cheese on a tortilla": "Je3V",
    "a kitten presses the keys of a piano": "TZ86",
    "a dog on a skateboard rolls down the street": "skateboarding_dog",
    "a motorcyclist lies on his back while riding": "klte",
    "a baby on a bed sucks a pacifier": "3qqE",
    "kids playing basketball in a sports hall": "structuralize",
    "a man in a Santa costume dances": "santa",
    "a woman with her face painted like a skull": "halloween",
    "a man cuts a pineapple into slices with a big knife": "AJJ",
    "a woman rides a horse around a field": "zTn",
    "a woman lifts a heavy barbell over her head": "v_GGSY",
    "fruit passes by on a conveyor belt": "fruit-and-vegetable",
    "a worker with a helmet walks through a factory": "worker-zone",
    "people with shopping carts in a grocery store": "store-aisle",
    "cars in a car park from above": "person-bicycle-car",
    "an insect crawls over a flower": "1066674802",
    "pastry dusted with powdered sugar": "1066674790",
    "a man sits outside and plays the drums": "sample_demo_22",
    "a family builds a snowman": "sample_demo_16",
    "a small car drives through the desert": "mini-cooper",
    "a tourist group on Segways in the city": "WUzg",
    "a woman shows a blue dress with flowers": "2430612",
    "a red fox looks into the camera": "fox",
    "a monkey and a cat play in the yard": "monkey",
    "rice and water are poured into a pot": "UXs3",
    "a boy keeps a football in the air in the garden": "SoccerJuggling",
    "a toddler with glasses looks at a picture book": "sample_demo_1.",
    "slices of red and yellow pepper on a tray": "sample_demo_9",
    "a snowboarder rides down the slope": "snowboard",
    "a deer walks through deep snow": "deer",
}
ABSENT_SHORT = """
fire truck, elephant, giraffe, zebra, lion, tiger, penguin, kangaroo, shark, whale, octopus, jellyfish, crocodile,
parrot, owl, butterfly, spider, snake, frog, turtle, cow, sheep, pig, panda, bear, squirrel, aeroplane, helicopter,
train, double-decker bus, tram, tractor, submarine, hot air balloon, rocket launch, full moon, violin, trumpet,
saxophone, harp, accordion, tennis, golf, ice hockey, swimming pool, surfing, bowling, archery, fencing, wedding,
funeral, church, graduation ceremony, fireworks, campfire, volcano, waterfall, beach, coral reef, lightning, tornado,
rainbow, northern lights, glacier, surgery, dentist, haircut, tattoo, newspaper, chess, poker, video game,
washing machine, vacuum cleaner, sewing machine, typewriter, bathtub, ice cream, hamburger, spaghetti, glass of wine,
birthday cake, lobster, steak on a grill, chocolate, marching soldiers, police car, ambulance, protest, excavator,
blacksmith, glass blowing, pottery wheel, knitting, painting on an easel, library, classroom, courtroom, cemetery,
castle, pyramid, Eiffel Tower, suspension bridge, lighthouse, windmill, kayak, scuba diver, parachute jump,
roller coaster, ferris wheel, clown, magician, puppet, pole vault, rugby, cricket match, sumo wrestlers, karate,
bullfight, beehive, microscope, astronaut, robot, wheelchair, mountain climber
"""
ABSENT_LONG = """
two elephants spray water on each other at a river
a train crosses a bridge in the mountains
a surgeon in a green gown operates on a patient
fireworks light up the sky over a harbour
a diver swims among coral and colourful fish
an old man plays the violin in an orchestra
a bride and a groom cut their wedding cake
a helicopter lands on the deck of a ship
a surfer rides a wave at the beach
penguins slide over the ice into the sea
a judge speaks in a crowded courtroom
lava flows down the side of a volcano at night
a potter shapes a vase on a turning wheel
a farmer milks a cow in a barn
a girl blows out the candles of a birthday cake
a tennis player serves in front of a full stadium
a goalkeeper saves a penalty kick
an aeroplane takes off in heavy rain
a tailor sews a suit with a sewing machine
a barber shaves a customer with a razor
a butterfly comes out of its cocoon
two sumo wrestlers push each other out of the ring
a lighthouse stands on a cliff in a storm
a magician pulls a rabbit out of a hat
a lion hunts a zebra in the savannah
a choir sings in a gothic cathedral
people skate on a frozen canal
a hairdresser dyes a customer's hair pink
a waiter pours red wine into a glass
a fisherman pulls a net full of fish into his boat
soldiers march in a parade with flags
a spider spins its web between two branches
a rocket lifts off in a cloud of smoke
a scientist looks through a microscope in a laboratory
children splash each other in a swimming pool
an excavator digs a hole at a building site
a blacksmith hammers glowing iron on an anvil
a ferris wheel turns at a fairground at night
a crocodile lies on the bank of a river
a student types an essay on a laptop in the library
a priest baptises a baby in a church
an ice hockey player scores a goal
a gymnast swings on the parallel bars
a climber hangs from a rope on a cliff
a chess player moves the queen
a tornado moves across open fields
a firefighter carries a hose up a ladder
a nurse takes blood from an arm
a bartender shakes a cocktail
a gondola glides through the canals of Venice
"""


@dataclass(frozen=True)
class Query:
    """What is asked for; ``right`` are the names of the files that show it, none when nothing does."""

    text: str
    kind: str
    right: frozenset[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder with the clips and a captions.csv beside it")
    parser.add_argument("--model")
    parser.add_argument("--index", type=Path, help="where the index is, or will be")
    parser.add_argument("--demo", action="store_true", help="the bundled clips and model")
    parser.add_argument("--queries", type=Path, help="a file of queries, in place of those in this script")
    arguments = parser.parse_args()
    if not arguments.demo and not (arguments.folder and arguments.model):
        parser.error("give a folder and --model, or --demo")
    with tempfile.TemporaryDirectory() as scratch:
        index = VideoIndex(arguments.index or scratch, model=DEMO if arguments.demo else arguments.model)
        index.add(demo_clips() if arguments.demo else arguments.folder)
        names = [entry.path.name for entry in index.videos()]
        print(f"{len(names)} videos, {index.status().model}, {index.status().clustering}\n")
        if arguments.queries:
            queries = file_queries(arguments.queries, names)
            print_recall(index, queries)
            print_grades(index, queries, ["reported"] * len(queries))
            return
        queries = demo_queries() if arguments.demo else folder_queries(arguments.folder, names)
        print_grades(index, queries, halves(queries))
        print_methods(index, queries)


def file_queries(path: Path, names: list[str]) -> list[Query]:
    """The queries of a JSON file; each clip that it names has to be there."""
    content = json.loads(path.read_text(encoding="utf-8"))
    queries = [
        Query(each["query"], f"present, {each['kind']}", frozenset(each["clips"])) for each in content["present"]
    ]
    missing = frozenset().union(*(query.right for query in queries)) - set(names)
    assert not missing, f"not in the folder: {', '.join(sorted(missing))}"
    return queries + [Query(each["query"], f"absent, {each['kind']}", frozenset()) for each in content["absent"]]


def print_recall(index: VideoIndex, queries: list[Query]) -> None:
    """Of each kind: how often a clip that shows it is the first hit, or among the first five; and what is missed."""
    ranks: dict[str, list[int]] = {}
    missed = []
    for query in (query for query in queries if query.right):
        hits = index.search(query.text, where="video", top=len(index.videos()), collapse=False)
        found = [hit.path.name in query.right for hit in hits]
        for kind in (query.kind, "present, all"):
            ranks.setdefault(kind, []).append(found.index(True))
        if not any(found[:5]):
            missed.append(f"{query.text} ({found.index(True) + 1})")
    for kind, places in ranks.items():
        first, five = (np.mean(np.array(places) < k) for k in (1, 5))
        print(f"{kind:22} {len(places):4} queries   R@1 {100 * first:5.1f}   R@5 {100 * five:5.1f}")
    print(f"not among the first five, and their rank: {', '.join(missed) or 'none'}\n")


def folder_queries(folder: Path, names: list[str]) -> list[Query]:
    """The queries above, and the sentences of the captions.csv beside the folder."""
    queries = []
    for kind, table in (("present, short", SHORT), ("present, long", LONG)):
        for text, parts in table.items():
            right = frozenset(name for name in names if any(part in name for part in parts.split()))
            assert right, f"no clip is named like {parts}"
            queries.append(Query(text, kind, right))
    with (folder.resolve().parent / "captions.csv").open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            queries.append(Query(row["caption"], "present, caption", frozenset({Path(row["file"]).name})))
    queries += [Query(text.strip(), "absent, short", frozenset()) for text in ABSENT_SHORT.split(",")]
    return queries + [Query(text, "absent, long", frozenset()) for text in ABSENT_LONG.strip().splitlines()]


def demo_queries() -> list[Query]:
    """Every thing of MiniVTT, whether in one of the bundled clips or not, and two captions of each clip."""
    captions: dict[str, list[str]] = {}
    with (demo_clips() / "captions.csv").open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            captions.setdefault(row["video"] + ".mp4", []).append(row["caption"])
    queries = [Query(c, "present, long", frozenset({v})) for v, cs in captions.items() for c in (cs[0], cs[-1])]
    for thing in world("emoji").things:
        shown = [v for v, cs in captions.items() if any(f" {name} " in f" {c} " for c in cs for name in thing.names)]
        article = "an" if thing.name[0] in "aeiou" else "a"
        kind = "present" if shown else "absent"
        queries.append(Query(f"{article} {thing.name}", f"{kind}, short", frozenset(shown)))
        if not shown:
            queries.append(Query(f"{article} {thing.name} rises in the desert", "absent, long", frozenset()))
    return queries + [Query(text, "of another world", frozenset()) for text in ABSENT_LONG.strip().splitlines()]


def print_grades(index: VideoIndex, queries: list[Query], parts: list[str]) -> None:
    """Of each kind and half: right first hits, and the grades of the first hits (of right ones, where there are)."""
    print(f"{'':22} {'half':8} {'asked':>6} {'right':>6} {'sure':>6} {'maybe':>6} {'unlikely':>9} {'convincing':>11}")
    lines: dict[tuple[str, str], list[str]] = {}
    asked: dict[tuple[str, str], int] = {}
    passed: dict[tuple[str, str], int] = {}
    for query, half in zip(queries, parts, strict=True):
        answer = index.search(query.text, where="video")  # names of files would tell
        hit = answer[0]
        for kind in (query.kind, "all right first hits" if query.right else "all that is absent"):
            asked[kind, half] = asked.get((kind, half), 0) + 1
            if not query.right or hit.path.name in query.right:
                lines.setdefault((kind, half), []).append(hit.grade)
                passed[kind, half] = passed.get((kind, half), 0) + answer.convincing
    for (kind, half), grades in sorted(lines.items()):
        shares = [f"{100 * grades.count(each) / len(grades):.0f} %" for each in ("sure", "maybe", "unlikely")]
        right = "" if kind.startswith(("absent", "of", "all that")) else str(len(grades))
        shares.append(f"{100 * passed[kind, half] / len(grades):.0f} %")
        columns = f"{shares[0]:>6} {shares[1]:>6} {shares[2]:>9} {shares[3]:>11}"
        print(f"{kind:22} {half:8} {asked[kind, half]:6} {right:>6} {columns}")


def print_methods(index: VideoIndex, queries: list[Query]) -> None:
    """One cut each: chosen on the first half for 95 % of the right first hits, applied to the second."""
    view = index._open().store.view()
    videos = list(view.videos)
    names = [index.video(video).path.name for video in videos]
    segments = [view.segments(video).vectors for video in videos]
    texts = np.concatenate([index.encode_texts([query.text, "a dog"])[:1] for query in queries])
    background = index.encode_texts(list(background_sentences()))
    best = np.stack([(texts @ each.T).max(axis=1) for each in segments], axis=1)  # [Q, V]
    found = best.argmax(axis=1)
    right = np.array([names[hit] in query.right for query, hit in zip(queries, found, strict=True)])
    absent = np.array([not query.right for query in queries])
    first = np.array(halves(queries)) == "chosen"
    print(f"\n{'one cut':48} {'right pass':>10} {'absent pass':>12}   (second half; goal: 95 %, 15 %)")
    for name, method in METHODS.items():
        value = method(texts, np.concatenate(segments), background, best)
        cut = np.quantile(value[right & first], 0.05)
        passes = [f"{100 * (value[who & ~first] >= cut).mean():.0f} %" for who in (right, absent)]
        print(f"{name:48} {passes[0]:>10} {passes[1]:>12}")


def halves(queries: list[Query]) -> list[str]:
    """Every other query of a kind was used to choose the cuts."""
    count: dict[str, int] = {}
    result = []
    for query in queries:
        count[query.kind] = count.get(query.kind, 0) + 1
        result.append("chosen" if count[query.kind] % 2 else "reported")
    return result


def at_hit(texts: Floats, segments: Floats, background: Floats) -> tuple[Floats, Floats]:
    """The best score of each query ``[Q]``, and what the background scores at that segment, ``[Q, B]``."""
    scores = texts @ segments.T
    return scores.max(axis=1), (background @ segments[scores.argmax(axis=1)].T).T


def standardised(texts: Floats, segments: Floats, background: Floats, best: Floats) -> Floats:
    score, others = at_hit(texts, segments, background)
    return np.asarray((score - others.mean(axis=1)) / others.std(axis=1))


def inverted_softmax(texts: Floats, segments: Floats, background: Floats, best: Floats) -> Floats:
    score, others = at_hit(texts, segments, background)
    return np.asarray(20 * score - np.log(np.exp(20 * others).sum(axis=1)))


def near_in_meaning(texts: Floats, segments: Floats, background: Floats, best: Floats) -> Floats:
    score, others = at_hit(texts, segments, background)
    weights = np.exp((texts @ background.T) / 0.2)
    return np.asarray(score - (weights * others).sum(axis=1) / weights.sum(axis=1))


def margin(texts: Floats, segments: Floats, background: Floats, best: Floats) -> Floats:
    ordered = np.sort(best, axis=1)
    return np.asarray((ordered[:, -1] - ordered[:, -6:-1].mean(axis=1)) / best.std(axis=1))


METHODS: dict[str, Callable[[Floats, Floats, Floats, Floats], Floats]] = {
    "the score": lambda texts, segments, background, best: best.max(axis=1),
    "less the mean of the background (what grades use)": lambda texts, segments, background, best: (
        (texts - background.mean(axis=0)) @ segments.T
    ).max(axis=1),
    "standardised by the background at the hit": standardised,
    "inverted softmax (QB-norm) at the hit": inverted_softmax,
    "less what sentences near in meaning score there": near_in_meaning,
    "over the next five videos, in deviations": margin,
}


if __name__ == "__main__":
    main()
