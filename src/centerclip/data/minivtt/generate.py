"""Generates the whole data set, clips or images: in parallel, resumable, and the same for the same seed."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ...errors import DataError
from ...files import remove_partial, write_atomic
from ...parallel import run_each, usable_cores
from .folder import EVENTS_FILE, VERSION, claim, events_text, timed_events, write_captions, write_info
from .plan import ClipPlan, plan_clips
from .render import BATCH, ImageJob, ImagePlan, RenderJob, plan_image, render_clip, render_images
from .sentences import clip_captions
from .sprites import INSTALL_FONT, check_font, find_font, font_fingerprint
from .world import SPLITS, Kind, Split, world

MIN_CLIPS = 20  # fewer would leave a split empty
MAX_VAL, MAX_TEST = 100, 500  # clips; all others are for training
MAX_VAL_IMAGES = 500
Job = TypeVar("Job")
Plan = TypeVar("Plan", ClipPlan, ImagePlan)
OnProgress = Callable[[int, int], None]


@dataclass
class Report:
    """What a run did. ``clips`` counts each split; ``failed`` maps a file to the reason."""

    folder: str
    things: Kind
    clips: dict[Split, int]
    note: str | None = None
    made: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0


def make(
    folder: str | Path,
    *,
    clips: int = 2000,
    seed: int = 0,
    workers: int | None = None,
    things: Kind | None = None,
    font: str | Path | None = None,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Write clips, captions and event times into a folder.

    A clip depends on the seed, its split and its number, so more clips only add to the existing ones. A stopped run
    can be resumed.

    Args:
        folder: a new or empty folder, or one that a run with the same seed and things began.
        clips: of all splits. A quarter is for test, up to 500; one in 20 for val, up to 100; the others for train.
        seed: another seed, other clips of the same world.
        workers: processes, by default one per core.
        things: ``emoji`` or ``shapes``; by default emoji when their font is found.
        font: an emoji font to use.
        force: remove what an earlier run made in the folder, and start over.
        on_progress: called with (finished, total) at the start and after each clip.
    """
    run = _Run(folder, "videos", clip_counts(clips), seed, things, font, force=force)
    plans = [plan for split in SPLITS for plan in plan_clips(world(run.kind), split, run.counts[split], seed)]
    missing = run.skip_existing(plans)
    jobs = [RenderJob(plan, run.files / f"{plan.id}.mp4", seed, run.kind, run.font) for plan in missing]
    run.render(render_clip, jobs, workers, on_progress, size=lambda job: 1, name=lambda job: job.target.name)
    written = run.written(plans)
    write_captions(run.folder, ((plan.id, text, plan.split) for plan in written for text in clip_captions(plan, seed)))
    write_atomic(run.folder / EVENTS_FILE, events_text(timed_events(plan, seed) for plan in written))
    return run.finish()


def make_images(
    folder: str | Path,
    *,
    clips: int = 30_000,
    seed: int = 0,
    workers: int | None = None,
    things: Kind | None = None,
    font: str | Path | None = None,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Write training images, as videos of one frame, and captions into a folder; arguments as of :func:`make`.

    They show one or two things in a place, only in pairs that training clips show too, so a model that has learnt
    from them still has not seen what val and test clips show. The last 500 (of few, one in 20) are for val.
    """
    if clips < MIN_CLIPS:
        raise DataError(f"at least {MIN_CLIPS} images are needed.")
    val = min(MAX_VAL_IMAGES, clips // 20)
    run = _Run(folder, "images", {"train": clips - val, "val": val}, seed, things, font, force=force)
    split_of = {
        plan_image(world(run.kind), split, number, seed): split
        for split, count in run.counts.items()
        for number in range(count)
    }
    plans = run.skip_existing(list(split_of))
    jobs = [
        ImageJob(tuple(plans[first : first + BATCH]), run.files, seed, run.kind, run.font)
        for first in range(0, len(plans), BATCH)
    ]

    def name(job: ImageJob) -> str:
        return f"{job.plans[0].id} and the {len(job.plans) - 1} after it"

    run.render(render_images, jobs, workers, on_progress, size=lambda job: len(job.plans), name=name)
    written = run.written(list(split_of))
    write_captions(run.folder, ((plan.id, text, split_of[plan]) for plan in written for text in plan.captions))
    return run.finish()


def clip_counts(clips: int) -> dict[Split, int]:
    """The number of clips of each split, of so many in all."""
    if clips < MIN_CLIPS:
        raise DataError(f"at least {MIN_CLIPS} clips are needed, so that every split has some.")
    val, test = min(MAX_VAL, clips // 20), min(MAX_TEST, clips // 4)
    return {"train": clips - val - test, "val": val, "test": test}


def choose_things(things: Kind | None, font: str | Path | None) -> tuple[Kind, Path | None, str | None]:
    """Which kind of things to draw, with which font, and a note when emoji are the default but cannot be drawn."""
    if things == "shapes":
        return "shapes", None, None
    path = Path(font).expanduser().absolute() if font else find_font()
    try:
        if path is None:
            raise DataError(f"the font Noto Color Emoji is not on this computer: {INSTALL_FONT}.")
        if not path.is_file():
            raise DataError(f"{path} is not a font file.")
        check_font(path)
    except DataError as error:
        if things == "emoji" or font:
            raise
        return "shapes", None, f"Drawing shapes instead of emoji, because {error}"
    return "emoji", path, None


class _Run:
    """One run in a folder that it has claimed: ``what`` is generated, ``videos`` or ``images``."""

    def __init__(
        self,
        folder: str | Path,
        what: str,
        counts: dict[Split, int],
        seed: int,
        things: Kind | None,
        font: str | Path | None,
        *,
        force: bool,
    ) -> None:
        self.started = time.monotonic()
        self.folder = Path(folder).expanduser().absolute()
        self.files = self.folder / ("videos" if what == "videos" else "pictures")
        self.counts = counts
        self.kind, self.font, note = choose_things(things, font)
        self.settings: dict[str, Any] = {
            "data": "minivtt",
            "what": what,
            "version": VERSION,
            "seed": seed,
            "things": self.kind,
            "font": font_fingerprint(self.font) if self.font else None,
            "clips": counts,
        }
        claim(self.folder, self.settings, force=force)
        self.files.mkdir(exist_ok=True)
        self.report = Report(str(self.folder), self.kind, counts, note)

    def skip_existing(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans that have no file yet."""
        existing = {plan.id for plan in self.written(plans)}
        self.report.skipped = len(existing)
        return [plan for plan in plans if plan.id not in existing]

    def render(
        self,
        function: Callable[[Job], None],
        jobs: Sequence[Job],
        workers: int | None,
        on_progress: OnProgress | None,
        *,
        size: Callable[[Job], int],
        name: Callable[[Job], str],
    ) -> None:
        """Do all jobs, and count what was made and what failed."""
        finished, total = self.report.skipped, sum(self.counts.values())
        show = on_progress or (lambda finished, total: None)
        show(finished, total)
        remove_partial(self.files)  # of a run that was killed
        try:
            with closing(run_each(function, jobs, workers=workers or usable_cores())) as outcomes:
                for outcome in outcomes:
                    if outcome.error is not None:
                        self.report.failed[name(outcome.job)] = outcome.error
                    else:
                        self.report.made += size(outcome.job)
                    finished += size(outcome.job)
                    show(finished, total)
        finally:
            remove_partial(self.files)  # the workers have stopped, also after Ctrl-C: nobody writes any more

    def written(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans that have a file now."""
        files = {path.stem for path in self.files.glob("*.mp4")}
        return [plan for plan in plans if plan.id in files]

    def finish(self) -> Report:
        self.report.bytes = sum(path.stat().st_size for path in self.files.glob("*.mp4"))
        self.report.seconds = round(time.monotonic() - self.started, 1)
        write_info(self.folder, self.settings | {"complete": not self.report.failed})
        return self.report
