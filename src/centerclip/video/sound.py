"""The sound of a video as samples, in parts that fit into memory whatever the length of the video."""

from collections.abc import Iterator
from contextlib import suppress
from os import PathLike, fspath

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.stream import Discard
from numpy.typing import NDArray

from .container import DEFAULT_LIMITS, Limits, Source, open_source

SAMPLE_RATE = 16_000  # Hz; what speech recognisers are trained on
CUT_SECONDS = 10.0  # at the end of a part, in which the quietest place is looked for: words are not cut in two
GAP_SECONDS = 1.0  # a jump of the clock that begins a new part

Samples = NDArray[np.float32]


def stream_sound(
    path: str | PathLike[str], *, seconds: float = 600.0, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[float, Samples]]:
    """The first audio track, mixed to one channel, part by part; nothing when there is none.

    Packets that do not decode are left out.

    Args:
        path: a video file.
        seconds: longest part.
        limits: bounds on what the file may cost. ``seconds`` holds for a part, not for the whole video.

    Yields:
        when a part begins, in seconds from the video's first frame, and its samples ``[N]`` in [-1, 1], 16,000 of them
        a second.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    with open_source(fspath(path), limits, audio=True) as source:
        if source.audio is None:
            return
        source.stream.discard = Discard.all
        begin, parts, amount = 0.0, list[Samples](), 0
        for time, samples in _decode(source):
            if time is not None and abs(time - begin - amount / SAMPLE_RATE) > GAP_SECONDS:
                if parts:
                    yield begin, np.concatenate(parts)
                begin, parts, amount = time, [], 0
            parts.append(samples)
            amount += len(samples)
            if amount >= seconds * SAMPLE_RATE:
                whole = np.concatenate(parts)
                cut = _quietest(whole)
                yield begin, whole[:cut]
                begin, parts, amount = begin + cut / SAMPLE_RATE, [whole[cut:]], len(whole) - cut
                source.deadline.renew()
        if amount:
            yield begin, np.concatenate(parts)


def _decode(source: Source) -> Iterator[tuple[float | None, Samples]]:
    """The samples of each frame, with its time where the container says it."""
    assert source.audio is not None
    resampler, form = None, None
    for packet in source.container.demux(source.audio):
        source.deadline.check()
        with suppress(av.FFmpegError):
            for decoded in packet.decode():
                assert isinstance(decoded, AudioFrame)
                found = decoded.format.name, decoded.layout.name, decoded.sample_rate
                if resampler is None or found != form:  # broadcasts go from stereo to 5.1 and back
                    resampler, form = AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE), found
                for frame in resampler.resample(decoded):
                    time = None if frame.time is None else frame.time - float(source.origin)
                    yield time, np.asarray(frame.to_ndarray().reshape(-1), np.float32)


def _quietest(samples: Samples) -> int:
    """Where to cut: the middle of the quietest tenth of a second near the end."""
    width = SAMPLE_RATE // 10
    tail = samples[-int(min(CUT_SECONDS * SAMPLE_RATE, len(samples) // 2)) :]
    blocks = tail[: len(tail) // width * width].reshape(-1, width)
    if not len(blocks):
        return len(samples)
    return len(samples) - len(tail) + int(np.abs(blocks).mean(axis=1).argmin()) * width + width // 2
