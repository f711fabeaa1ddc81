"""Decodes chosen frames of an open file: by seeking when the packets allow it, else by decoding everything."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby

import av
from av.packet import Packet
from av.video.frame import VideoFrame

from .container import Source
from .errors import UnreadableVideo
from .timeline import Keyframe, PacketTable, Timeline, finished_timeline, repaired

# Frames that no other frame refers to can be left out exactly in these codecs; other decoders guess.
CODECS_WITH_UNREFERENCED_FRAMES = {"h264", "hevc"}
NEAR_PACKETS = 100  # ahead: so many are read sooner than sought
MIN_DECODED_SHARE = 0.5  # of the frames; a video of which fewer decode is not worth calling readable
Keep = Callable[[VideoFrame], None]


class SeekMismatch(Exception):
    """Seeking did not give what the packets promise; only a sequential read is safe."""


def seek_frames(source: Source, table: PacketTable, chosen: Sequence[int], keep: Keep) -> None:
    """Decode the chosen frames and what they refer to, and nothing else.

    From the keyframe before a frame, packets are decoded up to the last one that is chosen before the next keyframe;
    then the decoder is told that this was all, and the rest is jumped over.

    Args:
        source: an open file.
        table: its packets.
        chosen: ascending numbers of frames, without repeats.
        keep: called with each of them, in their order.

    Raises:
        SeekMismatch: a frame came back damaged, out of place or not at all.
    """
    if table.seek_problem is not None:
        raise SeekMismatch(table.seek_problem)
    decoder = _SeekingDecoder(source, table, chosen)
    for frame in chosen:
        keep(decoder.frame_at(table.timeline.pts[frame]))


def runs_of(table: PacketTable, chosen: Sequence[int]) -> list[list[int]]:
    """Chosen frames, ascending, in groups that are decoded from one keyframe on."""
    starts = [keyframe.pts for keyframe in table.keyframes]
    pts = table.timeline.pts
    return [list(group) for _, group in groupby(chosen, lambda frame: bisect_right(starts, pts[frame]))]


class _SeekingDecoder:
    """Decodes forwards through a file, from keyframe to keyframe, and checks each frame against the packet table."""

    def __init__(self, source: Source, table: PacketTable, chosen: Sequence[int]) -> None:
        self.source, self.table = source, table
        self.wanted = {table.timeline.pts[frame] for frame in chosen}
        # By the keyframe that decoding starts at: the last packet that is needed.
        self.last_needed: dict[int, int] = {}
        for run in runs_of(table, chosen):
            keyframe = table.keyframe_before(table.timeline.pts[run[0]]).packet
            self.last_needed[keyframe] = int(table.positions[run].max())
        self.end = -1  # of the packets that are needed now
        self.drained = False
        self.context = source.stream.codec_context
        # Without reordering there is next to nothing to skip, or the times are wrong, which only the full order shows.
        self.may_skip = table.reordered and self.context.codec.name in CODECS_WITH_UNREFERENCED_FRAMES
        self.packets: Iterator[Packet] = iter(())
        self.next_packet = 0  # number of the packet that the demuxer gives next
        self.earliest = 0  # frames before this time, after a seek, lack the frames they refer to
        self.next_shown = 0  # number of the first frame that may come next
        self.awaited: set[int] = set()  # times of packets that were decoded, and whose frames have not come
        self.awaits_keyframe = False  # nothing came since the last seek, which has to give its keyframe first
        self.ready: list[VideoFrame] = []
        if source.primed:
            self.next_packet = -1 - NEAR_PACKETS  # nowhere: the first frame is sought
        else:
            self._seek(table.keyframes[0])

    def frame_at(self, pts: int) -> VideoFrame:
        """The frame of a time, which lies after all that were asked for before."""
        keyframe = self.table.keyframe_before(pts)
        if keyframe.packet > self.next_packet or self.drained:
            if self.next_packet == 0:
                # Some encoders describe themselves in the first packet alone, and a decoder that does not know them
                # makes green frames: it has to see that before the first jump.
                self._decode(self._next())
            self._go_to(keyframe)
        self.end = max(self.end, self.last_needed[keyframe.packet])
        for frame in self._frames():
            if frame.pts == pts:
                return frame
            if frame.pts is not None and frame.pts > pts:
                break
        raise SeekMismatch(f"the frame at {pts} ticks is missing")

    def _go_to(self, keyframe: Keyframe) -> None:
        """Continue at a keyframe: by reading on when it is near, which every container can."""
        if not 0 <= keyframe.packet - self.next_packet <= NEAR_PACKETS:
            return self._seek(keyframe)
        self.context.flush_buffers()
        while self.next_packet < keyframe.packet:
            self._next()
            self.next_packet += 1
        first = self._next()
        if first.pts != keyframe.pts:
            raise SeekMismatch("packets come in another order each time")
        self._start_at(keyframe, first)

    def _start_at(self, keyframe: Keyframe, first: Packet) -> None:
        """The decoder is empty, and the packet of a keyframe is the next."""
        self.next_packet, self.earliest = keyframe.packet, keyframe.pts
        self.next_shown = self.table.timeline.find(keyframe.pts)
        self.awaits_keyframe = self.table.timeline.has(keyframe.pts)
        self.ready, self.awaited, self.drained = [], set(), False
        self.packets = chain([first], self.packets)

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
                return self._start_at(landed, first)
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
            if self.drained:
                return
            self.drained = self.next_packet > self.end
            self.ready = self._decode(None if self.drained else self._next())

    def _next(self) -> Packet:
        try:
            return next(self.packets)
        except StopIteration as error:
            raise SeekMismatch("the video ends too early") from error
        except av.FFmpegError as error:
            self.source.deadline.check()
            raise SeekMismatch("the container cannot be read further") from error

    def _decode(self, packet: Packet | None) -> list[VideoFrame]:
        """The frames that a packet gives; without one, those that the decoder still has."""
        self.source.primed = True
        if packet is not None:
            self.next_packet += 1
            if self.may_skip:
                self.context.skip_frame = "DEFAULT" if packet.pts in self.wanted else "NONREF"
            elif packet.pts is not None and not packet.is_discard:
                self.awaited.add(packet.pts)
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
        self.awaited.discard(frame.pts)
        if number < self.next_shown or any(self.earliest <= other < frame.pts for other in self.awaited):
            raise SeekMismatch("frames came out of order")
        self.next_shown, self.awaits_keyframe = number + 1, False


def decode_all(source: Source, table: PacketTable, chosen: Sequence[int], keep: Keep) -> tuple[Timeline, int]:
    """Decode a file from its start to its end, as a player would, skipping what does not decode.

    Args:
        source: a file that was just opened.
        table: its packets.
        chosen: numbers of frames to keep, in the order that frames come.
        keep: called with each of them that comes, in their order.

    Returns:
        The frames that came, and how many packets gave an error.
    """
    wanted = set(chosen)
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
            if len(times) in wanted:
                keep(frame)
            times.append(frame.pts)
            last_duration = frame.duration
    if len(times) < MIN_DECODED_SHARE * len(table.timeline):
        raise UnreadableVideo(source.path, f"only {len(times)} of {len(table.timeline)} frames can be decoded")
    return finished_timeline(repaired(times, source), last_duration, source), lost
