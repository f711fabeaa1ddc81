"""LSMDC: clips of films, one sentence each, in tab-separated files without a header.

A line is ``clip, start, end, start, end, sentence``; times are repeated in the clip's name, which has dots in it.
"""

from .annotations import AnnotationFiles, Captions, gather
from .errors import AnnotationError
from .formats import Format, Published

FILES = {
    "train": "LSMDC16_annos_training.csv",
    "val": "LSMDC16_annos_val.csv",
    "test": "LSMDC16_challenge_1000_publictect.csv",
}


def read(files: AnnotationFiles, split: str) -> Captions:
    """The sentences of a split; quotation marks are part of them."""
    pairs = []
    for number, line in enumerate(files.lines(FILES[split]), start=1):
        fields = line.split("\t")
        if len(fields) < 5:  # five when there is no sentence
            raise AnnotationError(
                f"{files.find(FILES[split])}, line {number}: {len(fields)} fields between tabs, 6 were expected."
            )
        pairs.append((fields[0].strip(), " ".join(fields[5:])))
    return gather(pairs)


LSMDC = Format(
    name="lsmdc",
    read=read,
    published={
        "train": Published(101_079, 101_079),
        "val": Published(7_408, 7_408),
        "test": Published(1_000, 1_000),
    },
    note="LSMDC has 118,081 clips in all; the 1,000 of the test are what results are reported on",
)
