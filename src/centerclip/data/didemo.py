"""DiDeMo: all descriptions of a video joined into one paragraph.

Two layouts are in use: ``didemo_{split}_label.csv``, whose rows hold paragraphs, and the original
``{split}_data.json``, whose entries each describe one moment.
"""

from collections.abc import Iterator

from .annotations import AnnotationFiles, Captions, gather
from .errors import AnnotationError
from .files import without_extension
from .formats import Format, Published


def read(files: AnnotationFiles, split: str) -> Captions:
    """One paragraph for each video of a split."""
    table, original = f"didemo_{split}_label.csv", f"{split}_data.json"
    source = files.find(table, original)
    described = _from_table(files, table) if source.name.startswith(table) else _from_original(files, original)
    return {video: [" ".join(sentences)] for video, sentences in gather(described).items()}


def _from_table(files: AnnotationFiles, name: str) -> Iterator[tuple[str, str]]:
    for row in files.rows(name, columns=("video_path", "text")):
        yield _video(row["video_path"]), row["text"]


def _from_original(files: AnnotationFiles, name: str) -> Iterator[tuple[str, str]]:
    try:
        for moment in files.json(name):
            yield _video(moment["video"]), moment["description"]
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"{name} is not in the form of DiDeMo: {error!r} stands in the way.") from error


def _video(path: str) -> str:
    """The id in a path of someone else's machine. Some names end in a dot where the extension was lost."""
    return without_extension(path.replace("\\", "/").rsplit("/", 1)[-1]).rstrip(".")


DIDEMO = Format(
    name="didemo",
    read=read,
    published={"train": Published(8_395, 8_395), "val": Published(1_065, 1_065), "test": Published(1_004, 1_004)},
    note="a caption is a whole paragraph",
)
