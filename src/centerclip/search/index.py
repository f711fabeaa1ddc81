"""VideoIndex, the object people hold: a folder of vectors that is filled from videos and searched with sentences."""

import glob
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import (
    DamagedIndex,
    IndexNotFound,
    ModelError,
    OtherSettings,
    SearchError,
    SettingError,
    UnknownVideo,
)
from ..files import file_stamp, find_videos, is_below
from .folder import (
    DEFAULT_EVERY,
    DEFAULT_MODEL,
    SETTINGS,
    IndexSettings,
    default_folder,
    explain_full_disk,
    is_busy,
    read_settings,
    write_settings,
    writer_lock,
)
from .indexer import Progress, drop, update
from .lance import FILES, VIDEOS, remove_snapshots
from .query import Encoder, Query, open_model, settings_of, text_encoder_files
from .ranking import CALIBRATION, JUDGED_HITS, Ranked, grade, rank
from .results import Catalogue, Filters, Hit, IndexReport, Results, Status, VideoEntry, When, seconds_of
from .state import IndexState, check_sentence
from .store import File, Floats, Segments, View

if TYPE_CHECKING:
    from ..model import CenterCLIP
    from .query import AnyImage

AnyPath = str | os.PathLike[str]


class VideoIndex:
    """Videos, searchable by sentences, images and clips.

    Safe to use from several threads, and while another process adds to the index: a search sees what is committed.

    The index is opened at its first use. If it was made with another model or other settings, that raises
    :class:`~centerclip.search.OtherSettings`.

    Args:
        folder: where the index is, or will be; by default ``$CENTERCLIP_INDEX`` or the user's data folder.
        model: a hub name, a folder, a checkpoint or an open :class:`~centerclip.CenterCLIP`. An index keeps to the
            model that it was made with: name it once.
        clustering: the paper's notation; for a new index ``"kmedoids[proportional]:B6-4,1/3"`` (after half of the
            model's blocks), unless the model's folder says otherwise.
        frames: frames of a window; 12 for a new index, unless the model's folder says otherwise.
        every: seconds from frame to frame; 1 for a new index. Less finds shorter moments and takes longer to index.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``; a CUDA GPU by default, if there is one.
        create: False raises :class:`~centerclip.search.IndexNotFound` when there is no index yet.
    """

    def __init__(
        self,
        folder: AnyPath | None = None,
        *,
        model: "str | Path | CenterCLIP | None" = None,
        clustering: str | None = None,
        frames: int | None = None,
        every: float | None = None,
        device: str | None = None,
        create: bool = True,
    ) -> None:
        if every is not None and not every > 0:
            raise SearchError(f"every must be more than 0 seconds, not {every:g}")
        self.folder = Path(folder).expanduser() if folder is not None else default_folder()
        self._model, self._clustering, self._frames, self._every = model, clustering, frames, every
        self._device = device
        self._lock = threading.RLock()
        self._state: IndexState | None = None
        self._stamp: tuple[int, int] | None = None  # of the settings in _state
        if not create:
            read_settings(self.folder)

    # ---- filling ----------------------------------------------------------------------------------------------

    def add(
        self,
        *paths: AnyPath,
        reindex: bool = False,
        retry: bool = False,
        exclude: Collection[str] = (),
        decoders: int | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> IndexReport:
        """Index the videos below folders, and single files; drop what is gone from them.

        Only what is new or changed is encoded: a file that was moved, renamed or copied is recognised by its content.

        Args:
            paths: folders and files; those of earlier runs by default.
            reindex: forget all vectors first, and encode everything with the model and settings of this object.
            retry: try again files that could not be read and have not changed.
            exclude: patterns of names, or of paths below the folders, to leave out in this run and all later ones.
            decoders: files to read at the same time.
            on_progress: called every few seconds, after each commit.
        """
        began = time.monotonic()
        roots = [_absolute(path) for path in paths]
        for path in roots:
            if not path.exists():
                raise SearchError(f"there is no file or folder {str(path)!r}")
        if roots and not (self.folder / SETTINGS).exists() and not any(find_videos(*roots, ignore=exclude)):
            raise SearchError(f"there are no videos in {', '.join(map(str, roots))}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with explain_full_disk(self.folder), writer_lock(self.folder):
            state = self._open_for_writing(reindex, roots, exclude)
            roots = roots or [Path(root) for root in state.settings.roots]
            report = update(state, roots, retry=retry, decoders=decoders, on_progress=on_progress)
            if state.encoder.lacks_text_encoder():
                self._save(state, replace(state.settings, files=text_encoder_files(state.encoder.model())))
        report.seconds = time.monotonic() - began
        return report

    def remove(self, *paths: AnyPath, videos: Collection[str] = ()) -> int:
        """Drop files, folders and videos (by id) from the index, and leave them out of later runs until they are named.

        Returns:
            how many files were dropped. The files themselves stay.
        """
        self._open()
        folders = [str(_absolute(path)) for path in paths]

        def is_named(path: str) -> bool:
            return any(is_below(path, folder) for folder in folders)

        with explain_full_disk(self.folder), writer_lock(self.folder):
            state = self._open()
            files = state.store.view().files.values()
            removed = {file.path for file in files if is_named(file.path) or (file.video and file.video in videos)}
            drop(state.store, removed)
            roots = [root for root in state.settings.roots if not is_named(root)]
            # A folder stands for all files in it, also for those to come.
            gone = [folder for folder in folders if any(is_below(path, folder) for path in removed)]
            gone += sorted(path for path in removed if not is_named(path))
            rules = [glob.escape(path) for path in gone if any(is_below(path, root) for root in roots)]
            covered = [glob.escape(path) for path in gone]
            earlier = [rule for rule in state.settings.ignore if not any(is_below(rule, each) for each in covered)]
            ignore = [*earlier, *rules]
            self._save(state, replace(state.settings, roots=roots, ignore=ignore))
            state.store.tidy(state.calibration.vectors)
        return len(removed)

    # ---- searching --------------------------------------------------------------------------------------------

    def search(
        self,
        text: str | None = None,
        *,
        image: "AnyImage | None" = None,
        video: AnyPath | None = None,
        top: int = 10,
        moments: bool = False,
        folder: AnyPath | None = None,
        name: str | None = None,
        min_duration: float | None = None,
        max_duration: float | None = None,
        after: When = None,
        before: When = None,
        min_score: float | None = None,
        collapse: bool = True,
    ) -> Results:
        """Find videos by a sentence, an image, a clip, or several of them: each counts the same.

        Args:
            text: what the video shows.
            image: an image that looks similar: a file, a PIL image or an array, uint8 ``[H, W, 3]``.
            video: a clip that looks similar. If it is in the index, it is not among the hits.
            top: most hits to return.
            moments: rank moments: a video can come several times.
            folder: only files below it.
            name: part of the file's name, or a pattern such as ``"IMG_*"``.
            min_duration: seconds.
            max_duration: seconds.
            after: files changed at this time or later: seconds since 1970, a date, or ``"2024-05-31"``.
            before: files changed before this time.
            min_score: leave out hits below.
            collapse: leave out near-duplicates of a better hit, and list them there.
        """
        return self.search_query(
            self.encode(text, image=image, video=video),
            top=top,
            moments=moments,
            folder=folder,
            name=name,
            min_duration=min_duration,
            max_duration=max_duration,
            after=after,
            before=before,
            min_score=min_score,
            collapse=collapse,
        )

    def search_query(
        self,
        query: Query,
        *,
        top: int = 10,
        moments: bool = False,
        folder: AnyPath | None = None,
        name: str | None = None,
        min_duration: float | None = None,
        max_duration: float | None = None,
        after: When = None,
        before: When = None,
        min_score: float | None = None,
        collapse: bool = True,
    ) -> Results:
        """Find videos by a query of :meth:`encode`; the other arguments are those of :meth:`search`."""
        filters = Filters(
            None if folder is None else str(_absolute(folder)),
            name,
            min_duration,
            max_duration,
            seconds_of(after, option="after"),
            seconds_of(before, option="before"),
        )
        state = self._open()
        began = time.perf_counter()
        catalogue = state.catalogue()
        if query.vector.shape != (state.settings.width,):
            raise SearchError(
                f"the query's vector is {list(query.vector.shape)}, the index's [{state.settings.width}]: another model"
            )
        among = catalogue.among(filters)
        if query.video_id in catalogue.files:
            among = [video for video in (catalogue.files if among is None else among) if video != query.video_id]
        ranked = rank(
            catalogue.view,
            query.vector,
            max(top, JUDGED_HITS),
            among=among,
            by_moment=moments,
            collapse=collapse,
            min_score=min_score,
        )
        confidences = state.calibration.confidences(query.vector, ranked, has_text=query.has_text)
        grades = [grade(confidence) for confidence in confidences]
        convincing = grades[:1] not in ([], ["unlikely"]) or "sure" in grades[:JUDGED_HITS]
        hits = [replace(_hit(catalogue, entry, filters), grade=grades[n]) for n, entry in enumerate(ranked[:top])]
        best = max(confidences[:JUDGED_HITS], default=0.0)
        return Results(hits, convincing, best, time.perf_counter() - began)

    def similar(self, video_id: str, start: float | None = None, *, top: int = 10) -> Results:
        """Other videos that look like one of the index, or like its segment at ``start`` seconds."""
        began = time.perf_counter()
        catalogue = self._open().catalogue()
        segments = _segments(catalogue.view, video_id)
        if start is None:
            vector = segments.vectors.mean(axis=0)
        else:
            vector = segments.vectors[max(0, int(np.searchsorted(segments.starts, start, side="right")) - 1)]
        query = vector / max(float(np.linalg.norm(vector)), 1e-12)
        others = [video for video in catalogue.files if video != video_id]
        hits = [_hit(catalogue, entry, Filters()) for entry in rank(catalogue.view, query, top, among=others)]
        return Results(hits, bool(hits), 1.0 if hits else 0.0, time.perf_counter() - began)

    def segments(
        self,
        video_id: str,
        text: str | None = None,
        *,
        image: "AnyImage | None" = None,
        video: AnyPath | None = None,
        query: Query | None = None,
    ) -> list[tuple[float, float, float]]:
        """Start, end and score of every segment of a video, in the order of time; without a query scores are 0."""
        segments = _segments(self._open().catalogue().view, video_id)
        scores = np.zeros(len(segments), np.float32)
        if any(part is not None for part in (text, image, video)):
            query = self.encode(text, image=image, video=video)
        if query is not None:
            scores = segments.vectors @ query.vector
        return list(zip(segments.starts.tolist(), segments.ends.tolist(), scores.tolist(), strict=True))

    def encode(
        self, text: str | None = None, *, image: "AnyImage | None" = None, video: AnyPath | None = None
    ) -> Query:
        """Encode what :meth:`search` takes, to search with it several times."""
        return self._open().encode(text, image, None if video is None else Path(video).expanduser())

    def encode_texts(self, sentences: list[str]) -> Floats:
        """The vectors ``[B, D]`` of sentences: many at once take less time each."""
        encoder = self._open().encoder
        for sentence in sentences:
            check_sentence(sentence)
        return encoder.text(sentences[0])[None] if len(sentences) == 1 else encoder.texts(sentences)

    # ---- listing ----------------------------------------------------------------------------------------------

    def videos(self) -> list[VideoEntry]:
        """All videos of the index, by path."""
        catalogue = self._open().catalogue()
        return sorted((_entry(catalogue, video) for video in catalogue.files), key=lambda entry: entry.path)

    def video(self, video_id: str) -> VideoEntry:
        """A video by its id."""
        catalogue = self._open().catalogue()
        _segments(catalogue.view, video_id)
        return _entry(catalogue, video_id)

    def files(self, video_id: str) -> list[File]:
        """The files that hold a video, as they were when they were indexed."""
        catalogue = self._open().catalogue()
        _segments(catalogue.view, video_id)
        return catalogue.files_of(video_id)

    def status(self) -> Status:
        """What is in the index."""
        state = self._open()
        settings, catalogue = state.settings, state.catalogue()
        view = catalogue.view
        return Status(
            folder=self.folder,
            model=settings.model,
            clustering=settings.clustering,
            frames=settings.frames,
            every=settings.every,
            videos=len(catalogue.files),
            files=sum(len(files) for files in catalogue.files.values()),
            segments=view.count(),
            hours=sum(view.videos[video].duration for video in catalogue.files) / 3600,
            bytes=state.store.bytes(),
            roots=tuple(Path(root) for root in settings.roots),
            failed={path: file.failure for path, file in view.files.items() if file.failure},
            busy=is_busy(self.folder),
            recall=view.recall(),
            ignore=tuple(settings.ignore),
        )

    # ---- inside -----------------------------------------------------------------------------------------------

    def _open(self) -> IndexState:
        """The index as it is now: opened again when its model or settings have changed."""
        with self._lock:
            stamp = file_stamp(self.folder / SETTINGS)
            if self._state is None or stamp != self._stamp:
                settings = read_settings(self.folder)
                if self._state is not None and settings.same_vectors(self._state.settings):
                    self._state = self._state.with_settings(settings)
                else:
                    self._state = IndexState.open(self.folder, settings, self._encoder(settings))
                self._stamp = stamp
            return self._state

    def _encoder(self, settings: IndexSettings) -> Encoder:
        """An encoder for an index, if this object asks for what the index was made with."""
        for name, asked, made_with in (
            ("clustering", self._clustering, settings.clustering),
            ("frames", self._frames, settings.frames),
            ("every", self._every, settings.every),
        ):
            if asked is not None and asked != made_with:
                raise self._other_settings(settings, f"{name} {asked}")
        if self._model is None or str(self._model) == settings.model:
            return Encoder(settings, device=self._device)
        try:
            model, asked_settings = self._open_with_settings(
                self._model, settings.clustering, settings.frames, settings.every
            )
        except (SettingError, ModelError) as error:  # it does not even take the index's settings
            raise self._other_settings(settings, str(self._model)) from error
        if not asked_settings.same_vectors(settings):
            raise self._other_settings(settings, asked_settings.describe())
        return Encoder(settings, model)

    def _other_settings(self, settings: IndexSettings, asked: str) -> OtherSettings:
        return OtherSettings(
            f"the index {self.folder} was made with {settings.describe()}, not with {asked}. Leave the setting out, "
            "name another folder with --index, or make the index again with --reindex"
        )

    def _open_for_writing(self, reindex: bool, roots: list[Path], exclude: Collection[str]) -> IndexState:
        """Open the index, or make it; the roots and what to leave out are remembered."""
        make = reindex or not (self.folder / SETTINGS).is_file()
        try:
            earlier = read_settings(self.folder, any_format=make)
        except (IndexNotFound, DamagedIndex):
            if not make:
                raise
            earlier = None
        all_roots = list(dict.fromkeys([*(earlier.roots if earlier else ()), *map(str, roots)]))
        if not all_roots:
            raise SearchError("nothing to index yet: name a folder with videos")
        state = self._make(earlier) if make else self._open()
        named = {glob.escape(str(root)) for root in roots}  # what was removed is back when it is named
        ignore = [rule for rule in (earlier.ignore if earlier else ()) if rule not in named]
        ignore = list(dict.fromkeys([*ignore, *exclude]))
        return self._save(state, replace(state.settings, roots=all_roots, ignore=ignore))

    def _make(self, earlier: IndexSettings | None) -> IndexState:
        """Make an empty index, with the earlier settings where none are given."""
        name = self._model or (earlier.model if earlier else DEFAULT_MODEL)
        clustering, frames = self._clustering, self._frames
        if earlier is not None and str(name) == earlier.model:
            clustering, frames = clustering or earlier.clustering, frames or earlier.frames
        every = self._every or (earlier.every if earlier else DEFAULT_EVERY)
        # The model first: when it cannot be opened, the index stays as it is.
        model, settings = self._open_with_settings(name, clustering, frames, every)
        for table in (VIDEOS, FILES):
            shutil.rmtree(self.folder / f"{table}.lance", ignore_errors=True)
        (self.folder / CALIBRATION).unlink(missing_ok=True)
        remove_snapshots(self.folder)
        return IndexState.open(self.folder, settings, Encoder(settings, model))

    def _open_with_settings(
        self, model: "str | Path | CenterCLIP", clustering: str | None, frames: int | None, every: float
    ) -> "tuple[CenterCLIP, IndexSettings]":
        """A model, opened unless it is, and the settings of an index made with it."""
        if isinstance(model, str | Path):
            opened = open_model(model, clustering, frames, self._device)
            return opened, settings_of(opened, model, every)
        return model, settings_of(model, None, every)

    def _save(self, state: IndexState, settings: IndexSettings) -> IndexState:
        """Write settings that changed, and use them from now on."""
        with self._lock:
            if settings != state.settings or not (self.folder / SETTINGS).is_file():
                write_settings(self.folder, settings)
            self._state, self._stamp = state.with_settings(settings), file_stamp(self.folder / SETTINGS)
            return self._state


def _hit(catalogue: Catalogue, entry: Ranked, filters: Filters) -> Hit:
    files = [Path(file.path) for file in catalogue.files_of(entry.video, filters)]
    best = entry.moments[0]
    return Hit(
        video_id=entry.video,
        path=files[0],
        start=best.start,
        end=best.end,
        score=best.score,
        moments=entry.moments,
        duration=catalogue.videos[entry.video].duration,
        copies=tuple(files[1:]),
        duplicates=tuple(Path(file.path) for video in entry.duplicates for file in catalogue.files_of(video)[:1]),
    )


def _entry(catalogue: Catalogue, video_id: str) -> VideoEntry:
    video, files = catalogue.videos[video_id], catalogue.files_of(video_id)
    return VideoEntry(
        video_id=video_id,
        path=Path(files[0].path),
        copies=tuple(Path(file.path) for file in files[1:]),
        duration=video.duration,
        width=video.width,
        height=video.height,
        modified=files[0].modified / 1e9,
        added=video.added,
        segments=len(catalogue.view.segments(video_id)),
        note=video.note,
    )


def _segments(view: View, video_id: str) -> Segments:
    try:
        return view.segments(video_id)
    except KeyError as error:
        raise UnknownVideo(f"the index has no video {video_id!r}") from error


def _absolute(path: AnyPath) -> Path:
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - links stay as they are named
