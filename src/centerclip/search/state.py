"""The state of an index that is open: its settings, its store, its model, and its files as they are now."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SearchError
from ..files import content_id
from ..video.sampling import Windows
from .folder import IndexSettings
from .lance import LanceStore
from .query import Encoder, Query
from .ranking import Calibration, score_deviation
from .results import Catalogue
from .store import Floats, Store

if TYPE_CHECKING:
    from .query import AnyImage


@dataclass
class IndexState:
    """The parts of an open index. Another model or setting makes another one of these."""

    folder: Path
    settings: IndexSettings
    store: Store
    encoder: Encoder
    calibration: Calibration
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _catalogue: Catalogue | None = None

    @classmethod
    def open(cls, folder: Path, settings: IndexSettings, encoder: Encoder | None = None) -> "IndexState":
        """Open the index in a folder."""
        store, calibration = LanceStore(folder, settings.width), Calibration(folder, settings.width)
        return cls(folder, settings, store, encoder or Encoder(settings), calibration)

    def with_settings(self, settings: IndexSettings) -> "IndexState":
        """The same with other roots or names in its settings."""
        return replace(self, settings=settings, _lock=threading.Lock(), _catalogue=None)

    @property
    def windows(self) -> Windows:
        """How videos are cut."""
        return Windows(self.settings.frames, self.settings.segments, self.settings.every)

    def catalogue(self) -> Catalogue:
        """The files and videos as they are now, with the view that they belong to."""
        view = self.store.view()
        with self._lock:
            if self._catalogue is None or self._catalogue.view is not view:
                self._catalogue = Catalogue(view)
            return self._catalogue

    def encode(self, text: str | None, image: "AnyImage | None", video: Path | None) -> Query:
        """Encode a query; of several parts each counts the same."""
        parts: list[Floats] = []
        if text is not None:
            check_sentence(text)
            parts.append(self.encoder.text(text))
        if image is not None:
            parts.append(self.encoder.image(image))
        if video is not None:
            parts.append(self.encoder.video(video))
        if not parts:
            raise SearchError("nothing to search for: give a sentence, an image or a video")
        if len(parts) == 1:
            return Query(parts[0], text is not None, self._video_id(video))
        # Images lie nearer to images than sentences do: divided by the deviation of its scores, each counts alike.
        view = self.store.view()
        query = np.sum([part / score_deviation(view, part) for part in parts], axis=0)
        vector = np.asarray(query / max(float(np.linalg.norm(query)), 1e-12), dtype=np.float32)
        return Query(vector, text is not None, self._video_id(video))

    def _video_id(self, path: Path | None) -> str:
        """Which video of the index a clip is; empty when it is none of them."""
        if path is None:
            return ""
        sizes = {file.size for file in self.store.view().files.values() if file.video}
        return content_id(path) if path.stat().st_size in sizes else ""


def check_sentence(text: str) -> None:
    """Raise :class:`SearchError` for a sentence that cannot be encoded."""
    if not text.strip():
        raise SearchError("the sentence is empty; describe what the video shows")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SearchError(f"the sentence {text!r} is not valid UTF-8; check the terminal's encoding") from error
