"""ActivityNet Captions: all sentences of a video joined into one paragraph. ``test`` is ``val_1``.

``val`` is held out of the training file, because ``val_1`` is what results are reported on.
"""

from .annotations import AnnotationFiles, Captions, gather, strings
from .benchmark import held_out
from .errors import AnnotationError
from .formats import Format, Published


def read(files: AnnotationFiles, split: str) -> Captions:
    """One paragraph for each video of a split."""
    name = "val_1.json" if split == "test" else "train.json"
    content = files.json(name)
    if not isinstance(content, dict) or not all(isinstance(video, dict) for video in content.values()):
        raise AnnotationError(f"{files.find(name)} must map video ids to their sentences.")
    return gather(
        (video, " ".join(strings(annotation.get("sentences"), source=f"{name}, {video}")))
        for video, annotation in content.items()
        if split == "test" or held_out(video) == (split == "val")
    )


ACTIVITYNET = Format(
    name="activitynet",
    read=read,
    published={"train+val": Published(10_009, 10_009), "test": Published(4_917, 4_917)},
    note="test is val_1; val is held out of the training file (about 1 video in 20); a caption is a whole paragraph",
)
