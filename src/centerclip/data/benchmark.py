"""What a loaded benchmark is: videos with their files and captions, and a fingerprint that names exactly these."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Clip:
    """One video of a benchmark and the sentences that describe it."""

    id: str
    path: Path
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Benchmark:
    """The videos of one split, in the order of the annotation files.

    ``missing`` are annotated videos without a file; they are not in ``videos``, so ``len(benchmark)`` is the real
    gallery size.
    """

    name: str
    split: str
    videos: tuple[Clip, ...]
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.videos)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        """All captions, video after video: the rows of a similarity matrix [captions, videos]."""
        return tuple(caption for clip in self.videos for caption in clip.captions)

    @cached_property
    def video_of_caption(self) -> tuple[int, ...]:
        """For each of ``captions``, its video's place in ``videos``."""
        return tuple(place for place, clip in enumerate(self.videos) for _ in clip.captions)

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when an id or a caption does, and not with order, paths or machine."""
        content = sorted((clip.id, clip.captions) for clip in self.videos)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        lost = f", {len(self.missing):,} missing" if self.missing else ""
        return (
            f"{self.name} {self.split}: {len(self.videos):,} videos, {len(self.captions):,} captions{lost} "
            f"[{self.fingerprint}]"
        )


def held_out(video: str) -> bool:
    """Whether a training video belongs to the validation part, for benchmarks that have none: about 1 in 20.

    It depends on the id alone, so a copy of the data that lacks some videos still splits the others the same way.
    """
    return int.from_bytes(hashlib.sha256(video.encode(errors="surrogatepass")).digest()[:8]) % 20 == 0
