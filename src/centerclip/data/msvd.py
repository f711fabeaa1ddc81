"""MSVD: 1,970 videos of about 40 sentences, in either of the two caption files that are in use.

``captions_msvd.json`` holds ``{id: [sentence, ...]}``; ``raw-captions.pkl`` holds ``{id: [[word, ...], ...]}``.
"""

from typing import Any

from .annotations import AnnotationFiles, Captions, gather, members, pick, strings
from .errors import AnnotationError
from .formats import Format, Published

JSON, PICKLE = "captions_msvd.json", "raw-captions.pkl"


def read(files: AnnotationFiles, split: str) -> Captions:
    """The captions of the videos that ``{split}_list.txt`` names."""
    source = files.find(JSON, PICKLE)
    content = files.json(JSON) if source.name.startswith(JSON) else files.pickle(PICKLE)
    if not isinstance(content, dict):
        raise AnnotationError(f"{source} must map video ids to sentences, not be a {type(content).__name__}.")
    captions = gather(
        (str(video), _sentence(sentence, f"{source}, video {video}"))
        for video, sentences in content.items()
        for sentence in members(sentences, source=f"{source}, video {video}")
    )
    return pick(captions, files.lines(f"{split}_list.txt"), source=str(source))


def _sentence(sentence: Any, source: str) -> str:
    """A sentence that is a string, or a list of words."""
    return sentence if isinstance(sentence, str) else " ".join(strings(sentence, source=source))


MSVD = Format(
    name="msvd",
    read=read,
    published={"train": Published(1_200, 48_774), "val": Published(100, 4_290), "test": Published(670, 27_763)},
)
