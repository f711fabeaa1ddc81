"""MSR-VTT: 10,000 videos of 20 sentences; the training-7K and training-9K lists, and the 1,000 pairs of test 1k-A.

``val`` are the 497 videos of the training list that the data set itself marks ``validate``; ``train`` is the rest of
the list, ``train+val`` all of it.
"""

from functools import partial

from .annotations import AnnotationFiles, Captions, gather, pick
from .errors import AnnotationError
from .formats import Format, Published

DATA = "MSRVTT_data.json"


def read(files: AnnotationFiles, split: str, *, training: str) -> Captions:
    """The captions of a split; ``training`` is the list in use, ``7k`` or ``9k``."""
    if split == "test":
        rows = files.rows("MSRVTT_JSFUSION_test.csv", columns=("video_id", "sentence"))
        return gather((row["video_id"], row["sentence"]) for row in rows)
    listed = [row["video_id"] for row in files.rows(f"MSRVTT_train.{training}.csv", columns=("video_id",))]
    data = files.json(DATA)
    try:
        own_split = {video["video_id"]: video["split"] for video in data["videos"]}
        captions = gather((sentence["video_id"], sentence["caption"]) for sentence in data["sentences"])
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"{DATA} is not in the form of MSR-VTT: {error!r} stands in the way.") from error
    wanted = [video for video in listed if (own_split.get(video) == "validate") == (split == "val")]
    return pick(captions, wanted, source=DATA)


_TEST = Published(1_000, 1_000)
_NOTE = "val is the part of the training list that MSR-VTT marks as validation; train+val is the whole list"

MSRVTT_9K = Format(
    name="msrvtt",
    read=partial(read, training="9k"),
    published={"train+val": Published(9_000, 180_000), "test": _TEST},
    note=_NOTE,
)
MSRVTT_7K = Format(
    name="msrvtt-7k",
    read=partial(read, training="7k"),
    published={"train+val": Published(7_010, 140_200), "test": _TEST},
    note=_NOTE,
)
