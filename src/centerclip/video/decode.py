"""Decodes chosen frames of an open file: by seeking when the packets allow it, else by decoding everything."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import av
from av.packet import Packet
from av.video.frame import VideoFrame

from .container import Source
from .errors import UnreadableVideo
from .timeline import Keyframe, PacketTable, Timeline, finished_timeline, repaired

# Frames that no other frame refers to can be left out exactly in these codecs; other decoders guess.
CODECS_WITH_UNREFERENCED_FRAMES = {"h264", "hevc"}
MIN_DECODED_SHARE = 0.5  # of the frames; a video of which fewer decode is not worth calling readable
Keep = Callable[[int, VideoFrame], None]


class SeekMismatch(Exception):
    """Seeking did not give what the packets promise; only a sequential read is safe."""


def seek_frames(source: Source, table: PacketTable, chosen: Sequence[int], keep: Keep) -> None:
    """Decode the chosen frames, jumping from keyframe to keyframe over what is not needed.

    Args:
        source: an open file.
        table: its packets.
        chosen: ascending numbers of frames, without repeats.
        keep: called with ``(place in chosen, frame)``.

    Raises:
        SeekMismatch: a frame came back damaged, out of place or not at all.
    """
    if table.seek_problem is not None:
        raise SeekMismatch(table.seek_problem)
    wanted = [table.timeline.pts[frame] for frame in chosen]
    decoder = _SeekingDecoder(source, table, set(wanted))
    for place, pts in enumerate(wanted):
        keep(place, decoder.frame_at(pts))


class _SeekingDecoder:
    """Decodes forwards through a file, from keyframe to keyframe, and checks each frame against the packet table."""

    def __init__(self, source: Source, table: PacketTable, wanted: set[int]) -> None:
        self.source, self.table, self.wanted = source, table, wanted
        self.context = source.stream.codec_context
        # Without reordering there is next to nothing to skip, or the times are wrong, which only the full order shows.
        self.may_skip = table.reordered and self.context.codec.name in CODECS_WITH_UNREFERENCED_FRAMES
        self.packets: Iterator[Packet] = iter(())
        self.next_packet = 0  # number of the packet that the demuxer gives next
        self.earliest = 0  # frames before this time, after a seek, lack the frames they refer to
        self.next_shown = 0  # number of the frame that should come next, when none is skipped
        self.awaits_keyframe = False  # nothing came since the last seek, which has to give its keyframe first
        self.ready: list[VideoFrame] = []
        self._seek(table.keyframes[0])

    def frame_at(self, pts: int) -> VideoFrame:
        """The frame of a time, which lies after all that were asked for before."""
        keyframe = self.table.keyframe_before(pts)
        if keyframe.packet > self.next_packet:
            if self.next_packet == 0:
                # Some encoders describe themselves in the first packet alone, and a decoder that does not know them
                # makes green frames: it has to see that before the first jump.
                self._decode(self._next())
            self._seek(keyframe)
        for frame in self._frames():
            if frame.pts == pts:
                return frame
            if frame.pts is not None and frame.pts > pts:
                break
        raise SeekMismatch(f"the frame at {pts} ticks is missing")

    def _seek(self, keyframe: Keyframe) -> None:
        for target in (keyframe.pts, keyframe.dts):  # containers differ in the time they seek by
            try:
                self.source.container.seek(target, stream=self.source.stream)
            except av.FFmpegError as error:
                raise SeekMismatch(f"the container cannot seek ({error.strerror})") from error
            self.packets = self.source.packets()
            first = self._next()
            if first.pts is None:
                continue
            landed = self.table.keyframe_before(first.pts)
            if landed.pts == first.pts and first.is_keyframe and landed.packet <= keyframe.packet:
                self.next_packet, self.earliest = landed.packet, landed.pts
                self.next_shown = self.table.timeline.find(landed.pts)
                self.awaits_keyframe = self.table.timeline.has(landed.pts)
                self.ready = []
                self.packets = chain([first], self.packets)
                return
        raise SeekMismatch("seeking missed the keyframe")

    def _frames(self) -> Iterator[VideoFrame]:
        """Frames as they come, each where the table says."""
        while True:
            while self.ready:
                frame = self.ready.pop(0)
                if frame.pts is not None and frame.pts < self.earliest:
                    continue
                self._check(frame)
                yield frame
            self.ready = self._decode(self._next())

    def _next(self) -> Packet:
        try:
            return next(self.packets)
        except StopIteration as error:
            raise SeekMismatch("the video ends too early") from error
        except av.FFmpegError as error:
            self.source.deadline.check()
            raise SeekMismatch("the container cannot be read further") from error

    def _decode(self, packet: Packet) -> list[VideoFrame]:
        self.next_packet += 1
        if self.may_skip:
            self.context.skip_frame = "DEFAULT" if packet.pts in self.wanted else "NONREF"
        try:
            return self.source.stream.decode(packet)
        except av.EOFError:
            return []
        except av.FFmpegError as error:
            raise SeekMismatch("a packet cannot be decoded") from error

    def _check(self, frame: VideoFrame) -> None:
        if frame.is_corrupt:
            raise SeekMismatch("a frame is damaged")
        if frame.pts is None or not self.table.timeline.has(frame.pts):
            raise SeekMismatch("a frame has a timestamp that no packet has")
        if self.awaits_keyframe and not (frame.pts == self.earliest and frame.key_frame):
            raise SeekMismatch("a packet is marked as a keyframe but is not one")
        number = self.table.timeline.find(frame.pts)
        if number < self.next_shown or (number > self.next_shown and not self.may_skip):
            raise SeekMismatch("frames came out of order")
        self.next_shown, self.awaits_keyframe = number + 1, False


def decode_all(source: Source, table: PacketTable, chosen: Sequence[int], keep: Keep) -> tuple[Timeline, int]:
    """Decode a file from its start to its end, as a player would, skipping what does not decode.

    Args:
        source: a file that was just opened.
        table: its packets.
        chosen: numbers of frames to keep, in the order that frames come, without repeats.
        keep: called with ``(place in chosen, frame)``.

    Returns:
        The frames that came, and how many packets gave an error.
    """
    places = {number: place for place, number in enumerate(chosen)}
    times: list[int | None] = []
    last_duration, lost = 0, 0
    packets = source.packets()
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:
            source.deadline.check()
            lost += 1
            break
        if packet is None:
            break
        try:
            frames = source.stream.decode(packet)
        except av.EOFError:
            continue
        except av.FFmpegError:
            lost += 1
            continue
        for frame in frames:
            if len(times) in places:
                keep(places[len(times)], frame)
            times.append(frame.pts)
            last_duration = frame.duration
    if len(times) < MIN_DECODED_SHARE * len(table.timeline):
        raise UnreadableVideo(source.path, f"only {len(times)} of {len(table.timeline)} frames can be decoded")
    return finished_timeline(repaired(times, source), last_duration, source), lost
