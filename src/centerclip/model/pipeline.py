"""Frames to vectors: threads decode, batches encode, and a file that cannot be read is a result, not an exception.

The one way from video files to vectors: behind ``encode_videos``, evaluation, indexing and reports.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..parallel import cores_per_rank
from ..video import VideoError, bin_centres

if TYPE_CHECKING:
    from ..cluster import Setting
    from ..video import Frames
    from .preprocess import Preprocess

Item = TypeVar("Item")
Info = TypeVar("Info")

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ids = NDArray[np.int64]

READ_AHEAD = 2  # batches that may wait, decoded, for the model
MIN_DECODERS = 2  # the model need not wait for one slow file
MAX_CPU_DECODERS = 4  # more would take the processor from the model
MAX_GPU_DECODERS = 32  # for one GPU; it encodes faster than a few threads decode
# What a bad file may raise; anything else is a bug.
UNREADABLE = (VideoError, OSError, MemoryError, ValueError, RuntimeError)


class VideoEncoder(Protocol):
    """What turns frames and sentences into vectors, on whatever engine: ``OnnxEncoder``, or ``CenterCLIP`` on torch."""

    preprocess: "Preprocess"
    frames: int  # of a window

    @property
    def folder(self) -> Path | None:
        """What it was opened from; None for a model that was never saved, or comes from a checkpoint file."""

    @property
    def blocks(self) -> int:
        """Blocks of the vision tower."""

    @property
    def segments(self) -> int:
        """Vectors of a window."""

    @property
    def width(self) -> int:
        """Values of a vector."""

    @property
    def clustering(self) -> "Setting":
        """The clustering in use; prints as the paper's notation."""

    @property
    def engine(self) -> str:
        """``"onnxruntime"`` or ``"torch"``."""

    @property
    def precision(self) -> str:
        """``"float32"``, ``"int8"`` or ``"bfloat16"``."""

    @property
    def on_gpu(self) -> bool:
        """Whether the processor is free while the model works."""

    def set_clustering(self, clustering: "str | Setting", *, frames: int | None = None) -> None:
        """Change the clustering, and the frames of a window."""

    def encode_windows(self, rgb: Pixels, mask: Bools, *, half: bool = True) -> tuple[Floats, Bools]:
        """Squares ``[V, T, size, size, 3]`` and which frames are real, ``[V, T]``, to vectors.

        Args:
            rgb: as :meth:`Preprocess.to_square` gives them.
            mask: False where a frame only fills up a short video.
            half: allow half precision on a GPU.

        Returns:
            segments ``[V, S, D]`` of norm 1, and which of them count, ``[V, S]``.
        """

    def encode_segments(self, rgb: Pixels, lengths: Sequence[int], *, half: bool = True) -> Floats | None:
        """Segments of any length to vectors ``[S, D]`` of norm 1; fewer frames cost less.

        None where segments depend on each other, or are made in several stages: windows of them can be encoded.

        Args:
            rgb: the frames of all segments, one after the other: squares ``[N, size, size, 3]``.
            lengths: frames of each segment, ``[S]``.
            half: allow half precision on a GPU.
        """

    def encode_sentences(self, texts: Sequence[str]) -> Floats:
        """Sentences to vectors ``[B, D]`` of norm 1."""

    def record_centres(self) -> AbstractContextManager[list[Ids]]:
        """Inside, collects the ids ``[V*S, K]`` of the tokens that clustering keeps, a list that is full at the end."""

    def batch_size(self) -> int:
        """How many windows to encode at a time, from the memory that is free."""

    def fingerprint(self) -> str:
        """A hash of what vectors depend on: weights and preprocessing; the same on every engine."""

    def describe(self) -> dict[str, Any]:
        """``engine``, ``precision``, ``device``, ``threads``, and what was ``measured`` of other precisions."""


class Window(NamedTuple):
    """Frames that the model encodes together."""

    rgb: Pixels  # [T, size, size, 3]
    mask: Bools | None = None  # [T], False where a frame only fills up a short video; None when all are real
    lengths: tuple[int, ...] = ()  # frames of each segment, where they differ: there are any number of frames then


Deliver = Callable[[int, Window], None]  # the number of a window in its video, and the window
Decode = Callable[[Item, Deliver], Info]  # delivers the windows of an item; raises one of UNREADABLE


@dataclass
class Decoded(Generic[Item, Info]):
    """What became of an item.

    Attributes:
        item: as it was given.
        info: what ``decode`` returned; None when it failed.
        error: why it failed.
        windows: what was delivered and is not encoded yet, by number.
        vectors: segments ``[S, D]`` and their mask ``[S]`` of every window, by number.
        last: the window that was encoded last, and its number.
    """

    item: Item
    info: Info | None = None
    error: Exception | None = None
    windows: dict[int, Window] = field(default_factory=dict)
    vectors: dict[int, tuple[Floats, Bools]] = field(default_factory=dict)
    last: tuple[int, Window] | None = None

    @property
    def segments(self) -> Floats:
        """The vectors of all segments in the order of time, ``[windows * S, D]``."""
        return np.concatenate([self.vectors[number][0] for number in sorted(self.vectors)])

    @property
    def mask(self) -> Bools:
        """Which of them are real, ``[windows * S]``."""
        return np.concatenate([self.vectors[number][1] for number in sorted(self.vectors)])


def encode_in_order(
    model: VideoEncoder,
    items: Iterable[Item],
    decode: Decode[Item, Info],
    *,
    batch_size: int | None = None,
    decoders: int | None = None,
    half: bool = True,
) -> Iterator[Decoded[Item, Info]]:
    """Encode items, in their order. A batch is made of the same items however long each takes to decode.

    Args:
        model: what with.
        items: anything that ``decode`` takes; usually one window each.
        decode: runs in threads: delivers the windows of an item, returns anything worth keeping.
        batch_size: items of a batch; what fits the memory by default.
        decoders: threads that decode; by default as many as keep the model busy.
        half: encode in half precision on a GPU; float32 is for published numbers.
    """
    for batch in decode_batches(items, decode, batch_size or model.batch_size(), decoders or default_decoders(model)):
        _encode(model, [(each, number) for each in batch for number in each.windows], len(batch), half=half)
        yield from batch


def encode_as_decoded(
    model: VideoEncoder,
    items: Iterable[Item],
    decode: Decode[Item, Info],
    *,
    batch_size: int,
    decoders: int,
    on_batch: Callable[[list[tuple[Decoded[Item, Info], int]]], None] = lambda batch: None,
    stop: threading.Event | None = None,
) -> Iterator[Decoded[Item, Info]]:
    """Encode items of any number of windows, as they are decoded; no batch waits until it is full.

    Args:
        model: what with.
        items: anything that ``decode`` takes.
        decode: as for :func:`encode_in_order`. When it starts again from window 0, what came before does not count.
        batch_size: windows of a batch, at most.
        decoders: threads that decode.
        on_batch: called after each batch with its items and the numbers of their windows, and twice a second with an
            empty list while there is nothing to encode.
        stop: set at the end, or when an exception ends it early, for a ``decode`` that takes long to notice.
    """
    waiting: list[tuple[Decoded[Item, Info], int]] = []
    ended: list[Decoded[Item, Info]] = []
    with _Decoding(items, decode, decoders, READ_AHEAD * batch_size, stop) as decoding:
        for event in decoding.events():
            if event.window is not None:
                waiting.append((event.decoded, event.number))
            elif event.decoded is not None:
                ended.append(event.decoded)
            if len(waiting) >= batch_size or decoding.nothing_decoded():
                _encode(model, waiting, batch_size)
                batch, waiting = waiting, []
                on_batch(batch)
            if not waiting:
                yield from ended
                decoding.finished(len(ended))
                ended = []
        _encode(model, waiting, batch_size)
        yield from ended


def decode_batches(
    items: Iterable[Item], decode: Decode[Item, Info], batch_size: int, decoders: int
) -> Iterator[list[Decoded[Item, Info]]]:
    """Decode items ahead of whoever takes them: in their order, ``batch_size`` at a time, failures included."""
    ended: dict[int, Decoded[Item, Info]] = {}
    first = 0
    with _Decoding(items, decode, decoders, READ_AHEAD * batch_size) as decoding:
        for event in decoding.events():
            if event.window is None and event.decoded is not None:
                ended[event.number] = event.decoded
            while all(place in ended for place in range(first, first + batch_size)):
                yield [ended.pop(place) for place in range(first, first + batch_size)]
                decoding.finished(batch_size)
                first += batch_size
    if ended:
        yield [ended[place] for place in sorted(ended)]


def read_squares(
    preprocess: "Preprocess",
    path: str | PathLike[str],
    count: int,
    *,
    start: float | None = None,
    end: float | None = None,
) -> "Frames":
    """Frames of a file as the model sees them: ``rgb`` is uint8 ``[T, size, size, 3]``.

    The arguments are those of :func:`~centerclip.video.read_frames`, which reads at the size that the model needs.
    """
    from ..video import read_frames  # here: what encodes sentences alone opens no FFmpeg

    frames = read_frames(path, count, short_side=preprocess.read_size, start=start, end=end)
    return replace(frames, rgb=preprocess.to_square(frames.rgb))


def to_window(preprocess: "Preprocess", rgb: Pixels, frames: int) -> tuple[Pixels, Bools]:
    """Any number of frames ``[T, H, W, 3]`` as a window: those at bin centres, or the last one repeated.

    Returns:
        squares ``[frames, size, size, 3]``, and which are real, ``[frames]``.
    """
    places = bin_centres(len(rgb), frames)
    chosen = sorted(set(places))
    squares = preprocess.to_square(rgb[chosen])
    return squares[np.searchsorted(chosen, places)], np.arange(frames) < len(rgb)


def encode_segments(model: VideoEncoder, rgb: Pixels, lengths: Sequence[int], *, half: bool = True) -> Floats:
    """Segments of as many frames as the model's own have, or fewer, to vectors ``[S, D]``.

    The arguments are those of :meth:`VideoEncoder.encode_segments`. Where that cannot be, frames are repeated until
    all segments are equally long, and fill windows of the model.
    """
    vectors = model.encode_segments(rgb, lengths, half=half)
    if vectors is None:
        places, rows, start = model.frames // model.segments, [], 0
        for n in lengths:
            rows += [start + place * n // places for place in range(places)]
            start += n
        rows += rows[-1:] * (-len(rows) % model.frames)
        windows = rgb[rows].reshape(-1, model.frames, *rgb.shape[1:])
        padded, _ = model.encode_windows(windows, np.ones(windows.shape[:2], dtype=bool), half=half)
        vectors = padded.reshape(-1, model.width)[: len(lengths)]
    return vectors


def default_decoders(model: VideoEncoder) -> int:
    """Threads that decode: enough to keep the model busy; few enough, on a CPU, to leave it the processor."""
    if model.on_gpu:
        return min(MAX_GPU_DECODERS, cores_per_rank())
    return max(MIN_DECODERS, min(MAX_CPU_DECODERS, cores_per_rank() // 2))


def _encode(
    model: VideoEncoder, waiting: list[tuple[Decoded[Item, Info], int]], batch_size: int, *, half: bool = True
) -> None:
    """Encode windows, each as it was delivered last, and keep their vectors; one that follows itself only once."""
    # A window that was delivered twice, as when a damaged file is read again, waits twice: it counts once.
    todo = list({(id(each), number): (each, number) for each, number in waiting if number in each.windows}.values())
    repeated: list[tuple[Decoded[Item, Info], int, int]] = []  # the last is the number of the same window
    for first in range(0, len(todo), batch_size):
        part: list[tuple[Decoded[Item, Info], int]] = []
        windows: list[Window] = []
        for decoded, number in todo[first : first + batch_size]:
            window = decoded.windows.pop(number)
            if window.lengths:
                vectors = encode_segments(model, window.rgb, window.lengths, half=half)
                decoded.vectors[number] = vectors, np.ones(len(vectors), dtype=bool)
                continue
            if decoded.last is not None and _is_same(decoded.last[1], window):
                repeated.append((decoded, number, decoded.last[0]))
                continue
            decoded.last = number, window
            part.append((decoded, number))
            windows.append(window)
        if not windows:
            continue
        masks = [np.ones(len(w.rgb), dtype=bool) if w.mask is None else w.mask for w in windows]
        encoded = model.encode_windows(np.stack([window.rgb for window in windows]), np.stack(masks), half=half)
        for (decoded, number), vectors, mask in zip(part, *encoded, strict=True):
            decoded.vectors[number] = (vectors, mask)
    for decoded, number, same in repeated:
        decoded.vectors[number] = decoded.vectors[same]


def _is_same(first: Window, second: Window) -> bool:
    """Whether two windows have the same pixels."""
    return first.mask is None and second.mask is None and np.array_equal(first.rgb, second.rgb)


class _Event(NamedTuple):
    """A window that was decoded, the end of an item (no window; its place is the number), or neither."""

    decoded: Any  # Decoded[Item, Info]; None when nothing has happened for a while
    number: int = 0
    window: Window | None = None


class _Stopped(Exception):
    """Nobody takes what is decoded any more; a thread gives up."""


class _Decoding(Generic[Item, Info]):
    """Threads that decode items, ahead of the model but never further than ``ahead`` windows and items.

    A thread's exception that is not about its file is raised where events are taken.
    """

    def __init__(
        self,
        items: Iterable[Item],
        decode: Decode[Item, Info],
        threads: int,
        ahead: int,
        stop: threading.Event | None = None,
    ) -> None:
        self._items, self._decode = enumerate(items), decode
        self._events: queue.Queue[_Event | BaseException | None] = queue.Queue(maxsize=ahead)
        self._places = threading.Semaphore(threads + ahead)
        self._lock, self._stop = threading.Lock(), stop or threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def __enter__(self) -> "_Decoding[Item, Info]":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                with suppress(queue.Empty):  # it may be waiting to put something
                    self._events.get_nowait()
                thread.join(0.05)

    def events(self) -> Iterator[_Event]:
        """What happens, until all items have ended."""
        running = len(self._threads)
        while running:
            try:
                event = self._events.get(timeout=0.5)
            except queue.Empty:
                event = _Event(None)
            if isinstance(event, BaseException):
                raise event
            if event is None:
                running -= 1
            else:
                if event.window is not None:
                    if event.number == 0:  # a damaged file is read again from its start
                        event.decoded.windows.clear()
                        event.decoded.vectors.clear()
                        event.decoded.last = None
                    event.decoded.windows[event.number] = event.window
                yield event

    def nothing_decoded(self) -> bool:
        """Whether there is nothing to take at this moment."""
        return self._events.empty()

    def finished(self, count: int) -> None:
        """So many items have left: as many more may be started."""
        if count:
            self._places.release(count)

    def _run(self) -> None:
        try:
            while True:
                while not self._places.acquire(timeout=0.2):
                    if self._stop.is_set():
                        return
                with self._lock:
                    place, item = next(self._items, (-1, None))
                if place < 0:
                    break
                self._decode_item(place, item)  # type: ignore[arg-type]
            self._put(None)
        except _Stopped:
            return
        except BaseException as error:  # a bug, in this module or in `decode`: nobody may wait for this thread
            with suppress(_Stopped):
                self._put(error)

    def _decode_item(self, place: int, item: Item) -> None:
        decoded: Decoded[Item, Info] = Decoded(item)
        try:
            decoded.info = self._decode(item, lambda number, window: self._put(_Event(decoded, number, window)))
        except UNREADABLE as error:
            decoded.error = error
        self._put(_Event(decoded, place))

    def _put(self, event: _Event | BaseException | None) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._events.put(event, timeout=0.2)
                return
        raise _Stopped
