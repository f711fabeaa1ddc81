"""Pictures and clips that people search with: looked at before anything is decoded, and never trusted."""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, UploadFile
from fastapi import Path as InPath
from fastapi import Query as InQuery

from ..search import Query, Results
from ..search.results import seconds_of
from ..video.container import Limits
from ..video.errors import NotAVideo, NoVideoStream, TooLarge, VideoError
from .problems import Problem
from .schemas import ID, ProblemAnswer, SearchAnswer, search_answer
from .service import Service, Shared
from .settings import ServeSettings

# Formats whose readers do no more than read; some that Pillow knows run other programs.
PICTURES = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
SIDE = 1024  # pixels; the model sees less
FRAMES = 20_000  # of a clip
READING = 30.0  # seconds for looking through a clip


def check_upload(path: Path, settings: ServeSettings) -> str:
    """Whether a file is an ``"image"`` or a ``"video"``; a picture is replaced by a small plain copy of itself."""
    if path.stat().st_size == 0:
        raise Problem("wrong-type", "The file is empty.")
    if _shrink_picture(path, settings.upload_pixels):
        return "image"
    from ..video import probe

    limits = Limits(pixels=settings.upload_pixels, duration=settings.upload_seconds, frames=FRAMES, seconds=READING)
    try:
        probe(path, limits=limits)
    except TooLarge as error:
        raise Problem(
            "too-large", f"Clips may be {settings.upload_seconds:g} seconds long; this one: {error.detail}."
        ) from error
    except (NotAVideo, NoVideoStream) as error:
        raise Problem("wrong-type", "Give a picture (JPEG, PNG, WebP, GIF) or a short video clip.") from error
    except VideoError as error:
        raise Problem("unreadable-video", f"{error.detail}. {error.advice}", reason=error.reason) from error
    return "video"


def _shrink_picture(path: Path, most_pixels: int) -> bool:
    """Replace a picture by a small upright PNG; False when it is none."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        picture = Image.open(path, formats=PICTURES)
    except UnidentifiedImageError:
        return False
    except Image.DecompressionBombError as error:
        raise Problem("too-large", f"The picture has more than {most_pixels:,} pixels.") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise Problem("wrong-type", "The picture is damaged.") from error
    with picture:
        if picture.width * picture.height > most_pixels:
            raise Problem(
                "too-large",
                f"The picture has {picture.width} x {picture.height} pixels; {most_pixels:,} are the limit.",
            )
        try:
            picture.draft("RGB", (SIDE, SIDE))  # JPEG: decoded smaller at once
            upright = ImageOps.exif_transpose(picture).convert("RGB")
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            raise Problem("wrong-type", "The picture is damaged.") from error
    upright.thumbnail((SIDE, SIDE))
    upright.save(path, "PNG")
    return True


router = APIRouter(tags=["search"])
PROBLEM: dict[str, Any] = {"model": ProblemAnswer, "content": {"application/problem+json": {}}}
ID_PATTERN = "^[0-9a-f]{32}$"
Sentence = Annotated[
    str | None,
    InQuery(max_length=1000, description="What is to be seen.", examples=["a dog catches a frisbee"]),
]
QueryName = Annotated[
    str | None,
    InQuery(pattern="^[0-9a-f]{24}$", description="Name of an earlier query by picture or clip."),
]
VideoIdInPath = Annotated[str, InPath(pattern=ID_PATTERN, description="A video's id.", examples=[ID])]


class Narrow:
    """The options of a search, the same for words and uploads."""

    def __init__(
        self,
        top: Annotated[int, InQuery(ge=1, le=200, description="How many hits at most.")] = 24,
        moments: Annotated[bool, InQuery(description="Rank moments: a video can come several times.")] = False,
        folder: Annotated[
            str | None, InQuery(max_length=64, description="Id of a folder: only files below it.")
        ] = None,
        name: Annotated[
            str | None, InQuery(max_length=200, description="Part of the file's name, or a pattern: `IMG_*`.")
        ] = None,
        min_duration: Annotated[float | None, InQuery(ge=0, allow_inf_nan=False, description="Seconds.")] = None,
        max_duration: Annotated[float | None, InQuery(ge=0, allow_inf_nan=False, description="Seconds.")] = None,
        after: Annotated[
            str | None, InQuery(max_length=40, description="Files changed then or later: 2024, 2024-05, 2024-05-31.")
        ] = None,
        before: Annotated[str | None, InQuery(max_length=40, description="Files changed before.")] = None,
        min_score: Annotated[float | None, InQuery(ge=-1, le=1, description="Leave out hits below.")] = None,
        everything: Annotated[bool, InQuery(alias="all", description="Show near-duplicates too.")] = False,
    ) -> None:
        self.folder = folder
        self.options: dict[str, Any] = {
            "top": top,
            "moments": moments,
            "name": name or None,
            "min_duration": min_duration,
            "max_duration": max_duration,
            "after": _date(after, "after"),
            "before": _date(before, "before"),
            "min_score": min_score,
            "collapse": not everything,
        }


def _date(text: str | None, option: str) -> float | None:
    try:
        return seconds_of(text or None, option=option)
    except (OverflowError, OSError) as error:
        raise Problem("bad-query", f"{option}: this date is too far away") from error


Narrowed = Annotated[Narrow, Depends()]


@router.get("/search", summary="Search with a sentence", responses={404: PROBLEM, 422: PROBLEM, 503: PROBLEM})
async def search(service: Shared, narrow: Narrowed, q: Sentence = None, query: QueryName = None) -> SearchAnswer:
    """Videos that show what a sentence says, each with its best moment. Everyone can link to an answer."""
    wanted = await encoded_query(service, q, query)
    if wanted is None:
        raise Problem("bad-query", "q: there is nothing to search for; say what is to be seen")
    return await _answer(service, narrow, wanted, query)


@router.post(
    "/search",
    summary="Search with a picture or a clip",
    responses={404: PROBLEM, 408: PROBLEM, 413: PROBLEM, 415: PROBLEM, 422: PROBLEM, 503: PROBLEM},
)
async def search_alike(
    service: Shared,
    narrow: Narrowed,
    file: Annotated[UploadFile, File(description="A picture or a short clip of something alike.")],
    q: Annotated[str | None, Form(max_length=1000, description="Words that count as much: at night.")] = None,
) -> SearchAnswer:
    """Videos that look like a picture or a clip, and show what the sentence says if there is one."""
    with tempfile.TemporaryDirectory(prefix="centerclip-") as folder:
        path = Path(folder) / "upload"  # never the name that the client gives
        await service.upload_lane.run(_save, file, path)
        wanted = await service.upload_lane.run(_encode, service, path, q)
    name = service.library.remember(wanted)
    return await _answer(service, narrow, wanted, name)


@router.get("/videos/{video_id}/similar", summary="More like this", responses={404: PROBLEM, 422: PROBLEM})
async def similar(
    service: Shared,
    video_id: VideoIdInPath,
    start: Annotated[
        float | None,
        InQuery(ge=0, le=1e6, allow_inf_nan=False, description="Like the segment at so many seconds; else as a whole."),
    ] = None,
    top: Annotated[int, InQuery(ge=1, le=200, description="How many hits at most.")] = 24,
) -> SearchAnswer:
    """Other videos that look like one of the index, or like a moment of it."""
    results = await service.search_lane.run(service.library.index.similar, video_id, start, top=top)
    return await service.look_lane.run(search_answer, service.library, results)


async def encoded_query(service: Service, q: str | None, query: str | None) -> Query | None:
    """What is asked for, by a sentence or by the name of an earlier query; None without either."""
    if query is not None:
        return service.library.recall(query)
    if q is None or not q.strip():
        return None
    return Query(await service.sentences.vector(q.strip()), has_text=True)


async def _answer(service: Service, narrow: Narrow, wanted: Query, query: str | None) -> SearchAnswer:
    return await service.search_lane.run(partial(_search, service, narrow, wanted, query))


def _search(service: Service, narrow: Narrow, wanted: Query, query: str | None) -> SearchAnswer:
    library = service.library
    folder = None if not narrow.folder else library.folder(narrow.folder)
    results: Results = library.index.search_query(wanted, folder=folder, **narrow.options)
    return search_answer(library, results, query)


def _save(file: UploadFile, path: Path) -> None:
    with path.open("wb") as target:
        shutil.copyfileobj(file.file, target)


def _encode(service: Service, path: Path, text: str | None) -> Query:
    kind = check_upload(path, service.settings)
    words = text.strip() if text and text.strip() else None
    return service.library.index.encode(words, **{kind: path})
