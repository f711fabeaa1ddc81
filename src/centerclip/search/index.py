"""VideoIndex, the object people hold: a folder of vectors that is filled from videos and searched with sentences."""

import glob
import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import (
    DamagedIndex,
    IndexBusy,
    IndexNotFound,
    ModelError,
    OtherSettings,
    QueryError,
    SearchError,
    SettingError,
    UnknownVideo,
)
from ..files import content_id, find_videos, is_address, is_below, path_of
from ..model.hub import default_model
from ..model.known import DEFAULT_MODEL, full_name
from ..video.sampling import ORDER, DetailName, Windows
from .filters import Filters, Near, Only, When, seconds_of
from .folder import (
    DEFAULT_EVERY,
    IndexSettings,
    default_folder,
    local_folder,
    read_lance_settings,
    remove_lance,
    suffixes_of,
)
from .indexer import Progress, Work, drop, sharpened, update
from .query import Encoder, Query, open_model, settings_of
from .ranking import JUDGED_HITS, Calibration, Moment, Ranked, moments_of, rank, score_deviation
from .results import Hit, IndexReport, Results, Status, VideoEntry, entries_of, files_of, hits_of, note_found
from .sqlite import Database as SqliteDatabase
from .store import Database, File, Floats, Line, Segments, Store, View, unit
from .text import MIN_SHARE, merge, search_text

if TYPE_CHECKING:
    from ..model.pipeline import VideoEncoder
    from .query import AnyImage
    from .recognise import Recogniser

AnyPath = str | os.PathLike[str]
Where = Literal["all", "video", "text"]
SHARPENED_HITS = 5  # whose moments are read again, by default
NOTE_SECONDS = 2.0  # between two notes of what was found


@dataclass
class IndexState:
    """The parts of an open index. Another model or setting makes another one of these."""

    folder: Path
    settings: IndexSettings
    store: Store
    encoder: Encoder

    def __post_init__(self) -> None:
        self.calibration = Calibration(self.store)

    @property
    def windows(self) -> Windows:
        """How videos are cut."""
        return Windows(self.settings.frames, self.settings.segments, self.settings.every)

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
            raise QueryError("nothing to search for: give a sentence, an image or a video")
        if len(parts) == 1:
            return Query(parts[0], text is not None, self._video_id(video), text or "")
        # Images lie nearer to images than sentences do: divided by the deviation of its scores, each counts alike.
        view = self.store.view()
        total = np.sum([part / score_deviation(view, part) for part in parts], axis=0)
        return Query(unit(total), text is not None, self._video_id(video))

    def _video_id(self, path: Path | None) -> str:
        """Which video of the index a clip is; empty when it is none of them."""
        if path is None:
            return ""
        return content_id(path) if self.store.view().has_size(path.stat().st_size) else ""


def check_sentence(text: str) -> None:
    """Raise :class:`QueryError` for a sentence that cannot be encoded."""
    if not text.strip():
        raise QueryError("the sentence is empty; describe what the video shows")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"the sentence {text!r} is not valid UTF-8; check the terminal's encoding") from error


class VideoIndex:
    """Videos, searchable by sentences, images and clips.

    Safe to use from several threads, and while another process adds to the index: a search sees what is committed.

    The index is opened at its first use. If it was made with another model or other settings, that raises
    :class:`~centerclip.search.OtherSettings`.

    Args:
        folder: where the index is, or will be; by default ``$CENTERCLIP_INDEX`` or the user's data folder. An index on
            a Milvus server is named ``milvus://host:19530/name``.
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
        model: "str | Path | VideoEncoder | None" = None,
        clustering: str | None = None,
        frames: int | None = None,
        every: float | None = None,
        device: str | None = None,
        create: bool = True,
    ) -> None:
        if every is not None and not every > 0:
            raise SearchError(f"every must be more than 0 seconds, not {every:g}")
        self.folder, self._database = open_database(folder)
        name = full_name(model) if isinstance(model, str) else model
        self._model, self._clustering, self._frames, self._every = name, clustering, frames, every
        self._device = device
        self._lock = threading.RLock()
        self._state: IndexState | None = None
        self._version: Hashable = None  # of the database that _state shows
        self._noted = -NOTE_SECONDS  # when a search was noted last
        if not create:
            self._database.settings()

    # ---- filling ----------------------------------------------------------------------------------------------

    def add(
        self,
        *paths: AnyPath,
        reindex: bool = False,
        retry: bool = False,
        exclude: Collection[str] = (),
        only: Only | None = None,
        detail: DetailName | None = None,
        finer: bool = False,
        recognisers: "Sequence[Recogniser]" = (),
        decoders: int | None = None,
        hwaccel: str = "none",
        on_progress: Callable[[Progress], None] = lambda progress: None,
        runner: Callable[[Work], None] | None = None,
    ) -> IndexReport:
        """Index the videos and photographs below folders, and single files; drop what is gone from them.

        Only what is new or changed is encoded: a file that was moved, renamed or copied is recognised by its content.
        Subtitles, chapters, title and description are taken along.

        Args:
            paths: folders and files, also addresses such as ``"s3://bucket/films"``; those of earlier runs by default.
                A ``.txt`` file stands for the files that it names, one a line; they are not part of later runs.
            reindex: forget all vectors first, and encode everything with the model and settings of this object.
            retry: try again files that could not be read and have not changed.
            exclude: patterns of names, or of paths below the folders, to leave out in this run and all later ones.
            only: ``"videos"`` or ``"photos"`` leaves the others out of this run and all later ones, until ``"all"``.
            detail: how finely new videos are indexed, in this run and all later ones: ``"fast"`` reads keyframes alone,
                ``"normal"`` (a new index's) the frames that cost least and are at most five seconds apart, ``"fine"``
                one every ``every`` seconds.
            finer: also encode videos again that are indexed less finely than ``detail`` (as finely as can be by
                default), one step finer: those that were found last by a search first.
            recognisers: what to run on videos that it has not been run on yet: ``open_speech(model)`` and
                ``open_picture_text()`` of :mod:`centerclip.search.recognise`, or your own.
            decoders: files to read at the same time.
            hwaccel: a device that decodes, such as ``"cuda"``; ``"auto"`` takes one that the machine has.
            on_progress: called every few seconds, after each commit.
            runner: encodes what is new elsewhere, as :func:`~centerclip.integrations.ray.index_with_ray` does.
        """
        began = time.monotonic()
        if detail is not None and detail not in ORDER:
            raise SearchError(f"detail must be {', '.join(ORDER)}, not {detail!r}")
        if hwaccel != "none":
            from ..video.container import devices_for

            try:
                devices_for(hwaccel)
            except ValueError as error:
                raise SearchError(str(error)) from error
        roots = [_absolute(path) for path in paths]
        for path in roots:
            _check_exists(path)
        lists = {str(path): _read_list(path) for path in roots if _is_list(path)}
        roots = [path for path in roots if str(path) not in lists]
        is_new = bool(roots) and not self._database.exists() and not any(lists.values())
        if is_new and not any(find_videos(*roots, ignore=exclude, suffixes=suffixes_of(only or ""))):
            raise SearchError(f"there are no {only or 'videos'} in {', '.join(map(str, roots))}")
        with self._database.writing():
            state = self._open_for_writing(reindex, roots, exclude, only, detail, needs_root=not lists)
            report = update(
                state,
                roots if paths else list(map(path_of, state.settings.roots)),
                lists,
                recognisers,
                retry=retry,
                decoders=decoders,
                on_progress=on_progress,
                finer=(detail or "fine") if finer else None,
                hwaccel=hwaccel,
                runner=runner,
            )
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

        with self._database.writing():
            state = self._open()
            files = state.store.view().files.values()
            removed = {file.path for file in files if is_named(file.path) or (file.video and file.video in videos)}
            drop(state.store, removed)
            roots = [root for root in state.settings.roots if not is_named(root)]
            # A folder stands for all files in it, also for those to come.
            gone = [folder for folder in folders if any(is_below(path, folder) for path in removed)]
            gone += sorted(path for path in removed if not is_named(path))
            covered = [glob.escape(path) for path in gone]
            ignore = [rule for rule in state.settings.ignore if not any(is_below(rule, each) for each in covered)]
            ignore += [glob.escape(path) for path in gone if any(is_below(path, root) for root in roots)]
            self._save(state, replace(state.settings, roots=roots, ignore=ignore))
            state.store.tidy(state.calibration.vectors)
        return len(removed)

    def move_root(self, old: AnyPath, new: AnyPath) -> int:
        """Say that a folder of the index is elsewhere now: a disk with another mount point, another system's path.

        Args:
            old: an indexed folder, one above or below it, as :meth:`status` shows it; or the folder's own name.
            new: where it is now.

        Returns:
            how many files moved.
        """
        self._open()
        target = _absolute(new)
        if not target.exists():
            raise SearchError(f"there is no file or folder {str(target)!r}: connect the disk first")
        with self._database.writing():
            roots = self._open().settings.roots
            # As it was typed, for a path of another system; and by the name of a root.
            for place in (os.fspath(old), str(_absolute(old)), self._database.root_named(os.fspath(old))):
                moved = self._open().store.move(place, str(target)) if place else 0
                state = self._open()
                if moved or state.settings.roots != roots:
                    break
            else:
                known = ", ".join(roots) or "none"
                raise SearchError(f"the index has nothing in {os.fspath(old)!r}; its folders are: {known}")
            # What is left out is named by its path, in which letters that patterns know are escaped.
            before, after = glob.escape(place), glob.escape(str(target))
            rules = [after + rule[len(before) :] if is_below(rule, before) else rule for rule in state.settings.ignore]
            self._save(state, replace(state.settings, ignore=rules))
            state.store.tidy(state.calibration.vectors)
        return moved

    @property
    def address(self) -> str:
        """Where the index is, as people name it: a folder, or ``milvus://host:19530/name``."""
        return self._database.address

    def close(self) -> None:
        """Close the files of the index; the next use opens them again."""
        self._database.close()

    # ---- searching --------------------------------------------------------------------------------------------

    def search(
        self,
        text: str | None = None,
        *,
        image: "AnyImage | None" = None,
        video: AnyPath | None = None,
        query: Query | None = None,
        where: Where = "all",
        top: int = 10,
        moments: bool = False,
        folder: AnyPath | None = None,
        name: str | None = None,
        min_duration: float | None = None,
        max_duration: float | None = None,
        after: When = None,
        before: When = None,
        recorded_after: When = None,
        recorded_before: When = None,
        camera: str | None = None,
        near: Near | None = None,
        only: Only = "all",
        min_score: float | None = None,
        collapse: bool = True,
    ) -> Results:
        """Find videos by a sentence, an image, a clip, or several of them: each counts the same.

        Args:
            text: what the video shows, or words that are said or written in it. What is in "double quotes" is found as
                it stands, ``zep*`` all words that begin so.
            image: an image that looks similar: a file, a PIL image or an array, uint8 ``[H, W, 3]``.
            video: a clip that looks similar. If it is in the index, it is not among the hits.
            query: those three as :meth:`encode` gives them, in their place.
            where: ``"video"`` looks at what is shown, ``"text"`` at subtitles, chapters, titles and names (and opens no
                model), ``"all"`` at both. Images and clips have no text.
            top: most hits to return.
            moments: rank moments: a video can come several times.
            folder: only files below it.
            name: part of the file's name, or a pattern such as ``"IMG_*"``.
            min_duration: seconds.
            max_duration: seconds.
            after: files changed at this time or later: seconds since 1970, a date, or ``"2024-05-31"``.
            before: files changed before this time.
            recorded_after: recorded at this time or later, by what the file itself says. Files that do not say when
                they were recorded, or by what camera, or where, do not pass such a filter.
            recorded_before: recorded before this time.
            camera: part of the camera's make and model.
            near: latitude, longitude (degrees) and kilometres: recorded at most so far from there.
            only: ``"videos"`` or ``"photos"``. A length (``min_duration``, ``max_duration``) no photograph has.
            min_score: leave out hits below.
            collapse: leave out near-duplicates of a better hit, and list them there.
        """
        if query is None and where == "text":
            if text is None or image is not None or video is not None:
                raise QueryError("text is searched with words alone: leave out the image and the clip")
            check_sentence(text)
            query = Query(np.zeros(0, np.float32), has_text=True, text=text)
        query = query or self.encode(text, image=image, video=video)
        filters = Filters(
            None if folder is None else str(_absolute(folder)),
            name,
            min_duration,
            max_duration,
            seconds_of(after, option="after"),
            seconds_of(before, option="before"),
            seconds_of(recorded_after, option="recorded_after"),
            seconds_of(recorded_before, option="recorded_before"),
            camera,
            near,
            only,
            query.video_id,
        )
        state = self._open()
        began = time.perf_counter()
        view = state.store.view()
        if where != "text" and query.vector.shape != (state.settings.width,):
            raise SearchError(
                f"the query's vector is {list(query.vector.shape)}, the index's [{state.settings.width}]: another model"
            )
        wanted = max(top, JUDGED_HITS)
        options: dict[str, Any] = {"among": filters, "by_moment": moments, "collapse": collapse}
        ranked: list[Ranked] = []
        if where != "text":
            ranked = rank(view, query.vector, wanted, min_score=min_score, **options)
        confidences = state.calibration.confidences(query.vector, ranked, has_text=query.has_text) if ranked else []
        texts: list[Ranked] = []
        if where == "text" and not view.finds_text:
            raise QueryError(f"{self.address} cannot search words: its Milvus server is older than 2.5")
        if where != "video" and query.text:
            least = max(min_score or 0.0, MIN_SHARE if where == "all" else 0.0)
            texts = search_text(view, query.text, wanted, min_score=least, **options)
        found = merge(ranked, confidences, texts, by_moment=moments)
        grades = [each.grade for each in found[:JUDGED_HITS]]
        convincing = grades[:1] not in ([], ["unlikely"]) or "sure" in grades
        best = max((each.confidence for each in found[:JUDGED_HITS]), default=0.0)
        results = Results(hits_of(view, found[:top], filters), convincing, best, time.perf_counter() - began)
        self._remember(results.hits[: results.likely])
        return results

    def sharpen(self, hits: Iterable[Hit], *, top: int = SHARPENED_HITS) -> int:
        """Read the best moments of the first hits again, a frame every ``every`` seconds, and keep what comes of it.

        A search afterwards finds their starts and ends more closely. What is fine already is not read again, nor what
        was found by text, nor what is offline.

        Returns:
            how many moments are sharper now.
        """
        wanted = [hit for hit in islice(hits, top) if hit.found_by == "video" and not (hit.is_photo or hit.offline)]
        if self._database.is_busy():  # it would be encoded in vain
            raise IndexBusy(f"another process is writing to the index {self.address}; wait until it is done")
        sharper = 0
        for hit in wanted:
            sharp = sharpened(self._open(), hit)
            if sharp is None:
                continue
            video, before, after = sharp
            with self._database.writing():
                state = self._open()
                # Encoding takes a while, and others may have written: only what is still as it was is replaced.
                with suppress(KeyError):
                    if np.array_equal(state.store.view().segments(video.id).starts, before.starts):
                        state.store.replace(video, after)
                        sharper += 1
        if sharper:
            with self._database.writing():
                state = self._open()
                state.store.tidy(state.calibration.vectors)
        return sharper

    def similar(self, video_id: str, start: float | None = None, *, top: int = 10) -> Results:
        """Other videos that look like one of the index, or like its segment at ``start`` seconds."""
        began = time.perf_counter()
        view = self._open().store.view()
        segments = _segments(view, video_id)
        if start is None:
            vector = segments.vectors.mean(axis=0)
        else:
            vector = segments.vectors[max(0, int(np.searchsorted(segments.starts, start, side="right")) - 1)]
        hits = hits_of(view, rank(view, unit(vector), top, among=Filters(without=video_id)))
        return Results(hits, bool(hits), 1.0 if hits else 0.0, time.perf_counter() - began)

    def moments(self, video_id: str, query: Query) -> tuple[Moment, ...]:
        """The moments of a video that answer a query, best first."""
        view = self._open().store.view()
        segments, deviation = _segments(view, video_id), score_deviation(view, query.vector)
        return moments_of(segments, segments.vectors @ query.vector, deviation)

    def segments(
        self, video_id: str, text: str | None = None, *, query: Query | None = None
    ) -> list[tuple[float, float, float]]:
        """Start, end and score of every segment of a video, in the order of time; without a query scores are 0."""
        segments = _segments(self._open().store.view(), video_id)
        query = query if text is None else self.encode(text)
        scores = np.zeros(len(segments), np.float32) if query is None else segments.vectors @ query.vector
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
        return encoder.texts(sentences)

    # ---- listing ----------------------------------------------------------------------------------------------

    def videos(self, limit: int | None = None) -> list[VideoEntry]:
        """All videos of the index, by path. With ``limit`` so many of an index that is not in memory, by id."""
        view = self._open().store.view()
        return sorted(islice(entries_of(view), None if view.is_listed else limit), key=lambda entry: entry.path)

    def video(self, video_id: str) -> VideoEntry:
        """A video by its id."""
        view = self._open().store.view()
        files_of(view, video_id)  # UnknownVideo when it is not there
        return next(entries_of(view, [video_id]))

    def lines(self, video_id: str) -> list[Line]:
        """What is said and written in a video, in the order of time."""
        view = self._open().store.view()
        files_of(view, video_id)  # UnknownVideo when it is not there
        return view.lines(video_id)

    def files(self, video_id: str) -> list[File]:
        """The files that hold a video, as they were when they were indexed."""
        return files_of(self._open().store.view(), video_id)

    def status(self) -> Status:
        """What is in the index."""
        state = self._open()
        settings, view = state.settings, state.store.view()
        totals = view.totals()
        return Status(
            folder=self.folder if self.address == str(self.folder) else self.address,
            model=settings.model,
            clustering=settings.clustering,
            frames=settings.frames,
            every=settings.every,
            videos=totals.videos,
            photos=totals.photos,
            only=settings.only,
            details=totals.details,
            files=totals.files,
            segments=view.count(),
            hours=totals.seconds / 3600,
            bytes=state.store.bytes(),
            roots=tuple(map(path_of, settings.roots)),
            failed=totals.failed,
            busy=self._database.is_busy(),
            recall=view.recall(),
            ignore=tuple(settings.ignore),
            precision=settings.precision,
            offline=totals.offline,
            offline_roots=tuple(path_of(root) for root in settings.roots if root in totals.offline_roots),
            has_lines=view.has_lines,
            finds_text=view.finds_text,
        )

    def model_version(self) -> Hashable:
        """Changes with the model of the index and what its vectors depend on; None while there is no index."""
        try:
            return self._open().settings.vectors_id
        except SearchError:
            return None

    # ---- inside -----------------------------------------------------------------------------------------------

    def _remember(self, hits: Sequence[Hit]) -> None:
        """Note what was found, for :meth:`add` with ``finer``; a busy server does so now and then."""
        videos = [hit.video_id for hit in hits if not hit.is_photo]
        if videos and time.monotonic() - self._noted > NOTE_SECONDS:
            self._noted = time.monotonic()
            note_found(self.folder, videos)

    def _open(self) -> IndexState:
        """The index as it is now: opened again when its model or settings have changed."""
        with self._lock:
            version = self._database.version()
            if self._state is None or version != self._version:
                settings = self._database.settings()
                if self._state is not None and settings.vectors_id == self._state.settings.vectors_id:
                    self._state = replace(self._state, settings=settings)
                else:
                    encoder = self._encoder(settings)
                    self._state = IndexState(self.folder, settings, self._database.store(settings), encoder)
                self._version = version
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
        if asked_settings.vectors_id != settings.vectors_id:
            raise self._other_settings(settings, asked_settings.describe())
        return Encoder(settings, model)

    def _other_settings(self, settings: IndexSettings, asked: str) -> OtherSettings:
        return OtherSettings(
            f"the index {self.address} was made with {settings.describe()}, not with {asked}. Leave the setting out, "
            "name another folder with --index, or make the index again with --reindex"
        )

    def _open_for_writing(
        self,
        reindex: bool,
        roots: list[Path],
        exclude: Collection[str],
        only: Only | None,
        detail: DetailName | None,
        *,
        needs_root: bool,
    ) -> IndexState:
        """Open the index, or make it; the roots and what to leave out are remembered."""
        earlier, make = None, reindex
        try:
            if self._database.exists():
                self._database.make_writable()
            earlier = self._database.settings()
        except IndexNotFound:
            make = True
        except DamagedIndex:
            if not reindex:
                raise
            earlier = read_lance_settings(self.folder)
        all_roots = list(dict.fromkeys([*(earlier.roots if earlier else ()), *map(str, roots)]))
        if needs_root and not all_roots:
            raise SearchError("nothing to index yet: name a folder with videos")
        named = {glob.escape(str(root)) for root in roots}  # what was removed is back when it is named
        ignore = [rule for rule in (earlier.ignore if earlier else ()) if rule not in named]
        ignore = list(dict.fromkeys([*ignore, *exclude]))
        kind = (earlier.only if earlier else "") if only is None else only.removeprefix("all")
        scope: dict[str, Any] = {"roots": all_roots, "ignore": ignore, "only": kind}
        if detail or earlier:
            scope["detail"] = detail or earlier.detail  # type: ignore[union-attr]
        if make:
            return self._make(earlier, scope)
        state = self._open()
        return self._save(state, replace(state.settings, **scope))

    def _make(self, earlier: IndexSettings | None, scope: dict[str, Any]) -> IndexState:
        """Make an empty index of a scope, with the earlier settings where none are given."""
        name = self._model or (earlier.model if earlier else _default_model())
        clustering, frames = self._clustering, self._frames
        if earlier is not None and str(name) == earlier.model:
            clustering, frames = clustering or earlier.clustering, frames or earlier.frames
        every = self._every or (earlier.every if earlier else DEFAULT_EVERY)
        # The model first: when it cannot be opened, the index stays as it is.
        model, settings = self._open_with_settings(name, clustering, frames, every)
        settings = replace(settings, **scope)
        with self._lock:
            try:
                self._database.save_settings(settings, clear=True)
            except DamagedIndex:
                self._database.remove()
                self._database.save_settings(settings, clear=True)
            remove_lance(self.folder)
            self._version = self._database.version()
            self._state = IndexState(self.folder, settings, self._database.store(settings), Encoder(settings, model))
            return self._state

    def _open_with_settings(
        self, model: "str | Path | VideoEncoder", clustering: str | None, frames: int | None, every: float
    ) -> "tuple[VideoEncoder, IndexSettings]":
        """A model, opened unless it is, and the settings of an index made with it."""
        if isinstance(model, str | Path):
            opened = open_model(model, clustering, frames, self._device)
            return opened, settings_of(opened, model, every)
        return model, settings_of(model, None, every)

    def _save(self, state: IndexState, settings: IndexSettings) -> IndexState:
        """Write settings that changed, and use them from now on."""
        if settings != state.settings:
            self._database.save_settings(settings)
        return self._open()


def _default_model() -> str:
    """The model of a new index; a warning says so where it is the small one."""
    name, reason = default_model()
    if reason:
        warnings.warn(
            f'the Hugging Face hub cannot be reached ({reason}): the index is made with "{name}", the small model that '
            f"comes with CenterCLIP. For a better one, with a connection: centerclip index --reindex --model "
            f"{DEFAULT_MODEL}",
            stacklevel=2,
        )
    return name


def open_database(address: AnyPath | None) -> tuple[Path, Database]:
    """Where an index is, by its address: a folder of this machine, for what concerns it alone, and the database."""
    named = os.environ.get("CENTERCLIP_INDEX", "") if address is None else os.fspath(address)
    if named.startswith("milvus://"):
        from .milvus import MilvusDatabase

        return local_folder(named), MilvusDatabase(named)
    folder = default_folder() if address is None else Path(address).expanduser()
    return folder, SqliteDatabase(folder)


def _segments(view: View, video_id: str) -> Segments:
    """The segments of a video."""
    try:
        return view.segments(video_id)
    except KeyError as error:
        raise UnknownVideo(f"the index has no video {video_id!r}") from error


def _is_list(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and path.is_file()


def _read_list(path: Path) -> list[Path]:
    """The files that a list names, one a line; they are below its folder where they are not absolute."""
    lines = path.read_bytes().decode(errors="surrogateescape").splitlines()
    named = (line.strip() for line in lines if line.strip() and not line.startswith("#"))
    return [path_of(name) if is_address(name) else path.parent / name for name in named]


def _check_exists(path: Path) -> None:
    try:
        there = path.exists()
    except OSError as error:  # a storage that is away, or does not let us in
        raise SearchError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if not there:
        raise SearchError(f"there is no file or folder {str(path)!r}")


def _absolute(path: AnyPath) -> Path:
    if is_address(path):
        return path_of(path)
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - links stay as they are named
