"""Searching with a sentence, an image or a clip. Uploads are checked before anything is decoded, and never trusted."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, File, Form, Request, Response, UploadFile
from fastapi import Path as PathParam
from fastapi import Query as QueryParam

from ..integrations.timelines import formats, make_timeline, write_timeline
from ..search import Hit, Query
from ..search.filters import Only, near_of, seconds_of
from ..search.index import Where
from ..video.container import Limits
from ..video.errors import NotAVideo, NoVideoStream, TooLarge
from .middleware import is_local
from .problems import WITH_BODY, Problem, problem_responses
from .schemas import EXAMPLE_FOLDER, EXAMPLE_ID, NewTimeline, SearchResults, search_results
from .service import Service, ServiceDep
from .settings import ServeSettings

# Formats whose decoders only decode; some that Pillow knows run other programs.
IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MAX_IMAGE_SIDE = 1024  # pixels; models use less
MAX_CLIP_FRAMES = 20_000
MAX_PROBE_SECONDS = 30.0  # for reading the packets of a clip
router = APIRouter(tags=["search"])


def option(description: str, example: object, **rules: Any) -> Any:
    """A parameter of an address, as the OpenAPI document shows it."""
    return QueryParam(description=description, examples=[example], **rules)


Sentence = Annotated[str | None, option("What the video shows.", "a dog catches a frisbee", max_length=1000)]
QueryName = Annotated[
    str | None,
    option("Name of an earlier query by image or clip.", "9b1c5ab7d6e0f1a2b3c4d5e6", pattern="^[0-9a-f]{24}$"),
]
VideoIdParam = Annotated[str, PathParam(pattern="^[0-9a-f]{32}$", description="A video's id.", examples=[EXAMPLE_ID])]
Top = Annotated[int, option("How many hits at most.", 24, ge=1, le=200)]
SECOND = {"ge": 0, "le": 1e6, "allow_inf_nan": False}


# Not classes: FastAPI would make each on another thread.
async def filter_options(
    folder: Annotated[str | None, option("Id of a folder: only files below it.", EXAMPLE_FOLDER, max_length=64)] = None,
    name: Annotated[str | None, option("Part of the file's name, or a pattern.", "IMG_*", max_length=200)] = None,
    min_duration: Annotated[float | None, option("Seconds.", 60, **SECOND)] = None,
    max_duration: Annotated[float | None, option("Seconds.", 600, **SECOND)] = None,
    after: Annotated[
        str | None, option("Files changed at or after: 2024, 2024-05.", "2024-05-31", max_length=40)
    ] = None,
    before: Annotated[str | None, option("Files changed before.", "2025", max_length=40)] = None,
    recorded_after: Annotated[
        str | None, option("Recorded at or after, by what the file says.", "2024-05", max_length=40)
    ] = None,
    recorded_before: Annotated[str | None, option("Recorded before.", "2025", max_length=40)] = None,
    camera: Annotated[str | None, option("Part of its make and model.", "canon", max_length=200)] = None,
    near: Annotated[
        str | None, option("Recorded near a place: latitude,longitude,kilometres.", "52.37,4.89,10", max_length=80)
    ] = None,
    only: Annotated[Only, option("Videos or photographs alone.", "photos")] = "all",
) -> dict[str, Any]:
    """Which files count, the same for searches and lists; the folder is an id."""
    return {
        "folder": folder,
        "name": name or None,
        "min_duration": min_duration,
        "max_duration": max_duration,
        "after": seconds_of(after or None, option="after"),
        "before": seconds_of(before or None, option="before"),
        "recorded_after": seconds_of(recorded_after or None, option="recorded_after"),
        "recorded_before": seconds_of(recorded_before or None, option="recorded_before"),
        "camera": camera or None,
        "near": near_of(near or None, option="near"),
        "only": only,
    }


FilterOptions = Annotated[dict[str, Any], Depends(filter_options)]


async def search_options(
    filters: FilterOptions,
    top: Top = 24,
    moments: Annotated[bool, option("Rank moments: a video can appear several times.", True)] = False,
    min_score: Annotated[float | None, option("Leave out hits below.", 0.25, ge=-1, le=1)] = None,
    everything: Annotated[bool, option("Show near-duplicates too.", True, alias="all")] = False,
    where: Annotated[
        Where,
        option("Look at what is shown, at subtitles, chapters, titles and names, or at both.", "text", alias="in"),
    ] = "all",
) -> dict[str, Any]:
    """The options of a search, the same for sentences and uploads."""
    given = {"top": top, "moments": moments, "min_score": min_score, "collapse": not everything, "where": where}
    return {**filters, **given}


SearchOptions = Annotated[dict[str, Any], Depends(search_options)]


@router.get("/search", summary="Search with a sentence", responses=problem_responses(404, 422, 503))
async def search(
    service: ServiceDep, options: SearchOptions, q: Sentence = None, query: QueryName = None
) -> SearchResults:
    """Videos that show what a sentence says, or in which it is said or written, each with its best moment."""
    if options["where"] == "text" and query is None and q is not None and q.strip():
        encoded: Query | None = Query(np.zeros(0, np.float32), has_text=True, text=q.strip())  # needs no model
    else:
        encoded = await encode_query(service, q, query)
    if encoded is None:
        raise Problem("bad-query", "q: the query is empty; type what the video shows")
    return await service.search_pool.run(_search, service, options, encoded, query)


@router.post(
    "/search",
    summary="Search with an image or a clip",
    responses=problem_responses(*WITH_BODY, 404, 415, 422, 503),
)
async def search_by_example(
    service: ServiceDep,
    options: SearchOptions,
    file: Annotated[UploadFile, File(description="An image or a short clip of something similar.")],
    q: Annotated[
        str | None, Form(max_length=1000, description="Words that count as much.", examples=["at night"])
    ] = None,
) -> SearchResults:
    """Videos that look like an image or a clip, and show what the sentence says if there is one."""
    with tempfile.TemporaryDirectory(prefix="centerclip-") as folder:
        path = Path(folder) / "upload"  # never the name that the client sends
        await service.upload_pool.run(_save, file, path)
        encoded = await service.upload_pool.run(_encode_upload, service, path, q)
    name = service.library.save_query(encoded)
    return await service.search_pool.run(_search, service, options, encoded, name)


@router.get("/videos/{video_id}/similar", summary="More like this", responses=problem_responses(404, 422))
async def similar(
    service: ServiceDep,
    video_id: VideoIdParam,
    start: Annotated[float | None, option("Like the segment here; default: the whole video.", 12.5, **SECOND)] = None,
    top: Top = 24,
) -> SearchResults:
    """Other videos that look like one of the index, or like a moment of it."""
    results = await service.search_pool.run(service.library.index.similar, video_id, start, top=top)
    return await service.info_pool.run(search_results, service.library, results)


@router.post(
    "/timeline",
    summary="Moments as a timeline for an editor",
    response_class=Response,
    responses=problem_responses(*WITH_BODY, 404, 422, 503)
    | {200: {"content": {"text/plain": {}}, "description": "The file. `x-left-out` counts moments without a file."}},
)
async def make_timeline_file(service: ServiceDep, request: Request, wanted: NewTimeline) -> Response:
    """A file for an editor, with the timecodes of the videos. Full paths are for clients on the server's machine."""
    text, left_out = await service.frame_pool.run(_timeline, service, wanted, is_local(request))
    disposition = f'attachment; filename="timeline.{wanted.format}"'
    headers = {"content-disposition": disposition, "x-left-out": str(left_out)}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")


async def encode_query(service: Service, q: str | None, query: str | None) -> Query | None:
    """The query of a sentence, or of the name of an earlier query; None without either."""
    if query is not None:
        return service.library.saved_query(query)
    if q is None or not q.strip():
        return None
    return Query(await service.sentences.vector(q.strip()), has_text=True, text=q.strip())


def _search(service: Service, options: dict[str, Any], encoded: Query, name: str | None) -> SearchResults:
    library = service.library
    if options["where"] == "text" and not encoded.text:
        raise Problem("bad-query", "in: images and clips have no text; leave it out, or search with words alone")
    folder = library.folder(options["folder"]) if options["folder"] else None
    results = library.index.search(query=encoded, **{**options, "folder": folder})
    return search_results(library, results, name, encoded.text)


def _timeline(service: Service, wanted: NewTimeline, local: bool) -> tuple[str, int]:
    """The text of a timeline, and how many moments were left out of it."""
    library, suffix, hits = service.library, f".{wanted.format}", []
    if suffix not in formats():
        raise Problem("bad-query", "format: the server needs OpenTimelineIO: pip install 'centerclip[editors]'")
    for moment in wanted.moments:
        duration = library.index.video(moment.video_id).duration
        with suppress(Problem):  # the file is gone or has changed
            path = library.path_of(moment.video_id)
            hits.append(Hit(path=path, moments=(), duration=duration, **dict(moment)))
    made = make_timeline(
        hits,
        wanted.name,
        handles=wanted.handles,
        shown_path=lambda path: path if local else PurePosixPath("/", library.place(path)),
    )
    return write_timeline(made, suffix), len(wanted.moments) - len(made.clips)


def _save(file: UploadFile, path: Path) -> None:
    with path.open("wb") as target:
        shutil.copyfileobj(file.file, target)


def _encode_upload(service: Service, path: Path, text: str | None) -> Query:
    kind = _check_upload(path, service.settings)
    sentence = text.strip() if text and text.strip() else None
    return service.library.index.encode(sentence, **{kind: path})


def _check_upload(path: Path, settings: ServeSettings) -> str:
    """Whether a file is an ``"image"`` or a ``"video"``; an image is replaced by a small plain copy of itself."""
    if path.stat().st_size == 0:
        raise Problem("wrong-type", "The file is empty.")
    if _shrink_image(path, settings.upload_pixels):
        return "image"
    from ..video import probe

    limits = Limits(
        pixels=settings.upload_pixels,
        duration=settings.upload_seconds,
        frames=MAX_CLIP_FRAMES,
        seconds=MAX_PROBE_SECONDS,
    )
    try:
        probe(path, limits=limits)
    except TooLarge as error:
        raise Problem(
            "too-large", f"Clips may be {settings.upload_seconds:g} seconds long. This one: {error.detail}."
        ) from error
    except (NotAVideo, NoVideoStream) as error:
        raise Problem("wrong-type", "Upload an image (JPEG, PNG, WebP, GIF) or a short video clip.") from error
    except (OSError, ValueError, MemoryError) as error:  # what FFmpeg says of damaged files
        raise Problem("unreadable-video", "The clip is damaged. Check that it plays in a video player.") from error
    return "video"


def _shrink_image(path: Path, max_pixels: int) -> bool:
    """Replace an image by a small upright PNG; False when the file is not an image."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        image = Image.open(path, formats=IMAGE_FORMATS)
    except UnidentifiedImageError:
        return False
    except Image.DecompressionBombError as error:
        raise Problem("too-large", f"The limit for images is {max_pixels:,} pixels.") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise Problem("wrong-type", "The image is damaged.") from error
    with image:
        if image.width * image.height > max_pixels:
            raise Problem(
                "too-large",
                f"The image has {image.width} x {image.height} pixels; the limit is {max_pixels:,} pixels.",
            )
        try:
            image.draft("RGB", (MAX_IMAGE_SIDE, MAX_IMAGE_SIDE))  # a JPEG is then decoded smaller
            upright = ImageOps.exif_transpose(image).convert("RGB")
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            raise Problem("wrong-type", "The image is damaged.") from error
    upright.thumbnail((MAX_IMAGE_SIDE, MAX_IMAGE_SIDE))
    upright.save(path, "PNG")
    return True
