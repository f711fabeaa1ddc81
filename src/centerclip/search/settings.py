"""What an index remembers about itself: the model and the setting that its vectors come from, and its folders."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from .errors import DamagedIndex, IndexNotFound

SETTINGS = "index.json"
FORMAT = 1
DEFAULT_MODEL = "openai/clip-vit-base-patch32"
# A CLIP of the hub never saw clustering: weighing centres by their clusters changes it least (docs/results.md).
DEFAULT_CLUSTERING = "kmedoids[proportional]:B6-4,49"
DEFAULT_FRAMES = 12
DEFAULT_EVERY = 1.0  # seconds; a segment of the default model is then three seconds long


@dataclass(frozen=True)
class IndexSettings:
    """The contents of ``index.json``.

    Attributes:
        model: as it was named.
        fingerprint: of its weights and preprocessing.
        files: where the model's files are, and their size and time: to see at a glance that they are the same.
        clustering: in the paper's notation.
        frames: frames of a window.
        segments: segments of a window.
        every: seconds from frame to frame.
        width: of the vectors.
        roots: folders and files that were indexed.
    """

    model: str
    fingerprint: str
    clustering: str
    frames: int
    segments: int
    every: float
    width: int
    files: dict[str, list[int]] = field(default_factory=dict)
    roots: list[str] = field(default_factory=list)
    format: int = FORMAT

    def describe(self) -> str:
        """The setting in words."""
        return f"{self.model}, {self.clustering}, {self.frames} frames, one every {self.every:g} s"

    def same_vectors(self, other: "IndexSettings") -> bool:
        """Whether vectors made with the two can be in one index."""
        ours, theirs = (replace(s, model="", files={}, roots=[]) for s in (self, other))
        return ours == theirs


def read_settings(folder: Path) -> IndexSettings:
    """Read the settings of an index."""
    path = folder / SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise IndexNotFound(
            f"there is no index in {folder}. Make one with `centerclip index FOLDER`, or name another with --index"
        ) from error
    except (OSError, ValueError) as error:
        raise DamagedIndex(f"{path} cannot be read: {error}") from error
    try:
        if content["format"] != FORMAT:
            raise DamagedIndex(
                f"{folder} was made by another version of centerclip (format {content['format']}, this one reads "
                f"{FORMAT}); make it again with --reindex"
            )
        return IndexSettings(**content)
    except (KeyError, TypeError) as error:
        raise DamagedIndex(f"{path} does not describe an index ({error})") from error


def write_settings(folder: Path, settings: IndexSettings) -> None:
    """Replace the settings of an index in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{SETTINGS}.{os.getpid()}"
    partial.write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="ascii")
    partial.replace(folder / SETTINGS)


def default_folder() -> Path:
    """Where the index is when none is named: ``$CENTERCLIP_INDEX``, else the user's data folder."""
    named = os.environ.get("CENTERCLIP_INDEX")
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "centerclip" / "index"
