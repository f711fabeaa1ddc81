"""The CenterCLIP model: videos and sentences in, vectors of one embedding space out."""

import copy
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from ..cluster import Setting
from ..cluster.segments import Chooser
from ..cluster.setting import name_of
from ..errors import ModelError, SettingError
from ..extend import methods
from ..files import move_into_place, scratch_folder, write_atomic
from .attachment import Attachment, attach, detach
from .backbone import Backbone, open_backbone, saved_clustering
from .hub import PREPROCESSOR_FILES, SETTINGS_FILE, TEMPORAL_FILE
from .packed import pack_layers
from .pipeline import Bools, Deliver, Floats, Ids, Pixels, Window, encode_in_order, read_squares, to_window
from .temporal import TemporalTransformer
from .token_ids import clean_text
from .vectors import EncodedVideo, Protocol, Rule, fingerprint_of, segment_mask, similarity, video_vectors

if TYPE_CHECKING:
    from .card import Result

Video = str | os.PathLike[str] | Tensor | NDArray[np.uint8]
Item = TypeVar("Item")
Times = Tensor | NDArray[np.floating] | Sequence[float]
Precision = Literal["float32", "bfloat16"]
CPU_BATCH_BYTES = 512 * 2**20  # activations in flight on a CPU; more only leaves the cache
GPU_SHARE = 0.4  # of the free GPU memory for activations
DEFAULT_MAX_TOKENS = 77  # of a sentence, where the text tower does not say: CLIP's


def find_device(name: str | torch.device | None) -> torch.device:
    """A device by its name; by default an NVIDIA GPU, else Apple's, else the CPU.

    Raises:
        ModelError: this machine has no such device.
    """
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    try:
        device = torch.device(next(kind for kind in usable if usable[kind]) if name is None else name)
    except RuntimeError as error:
        raise ModelError(f'there is no device "{name}": choose {", ".join(usable)}') from error
    if not usable.get(device.type, True):
        there = ", ".join(kind for kind in usable if usable[kind])
        raise ModelError(f'torch finds no device "{device}" on this machine: choose {there}')
    return device


def _bar(items: Iterable[Item], unit: str, show: bool, total: int | None = None) -> Iterable[Item]:
    """The items, with a progress bar where it is wanted."""
    if not show:
        return items
    from tqdm.auto import tqdm

    return cast(Iterable[Item], tqdm(items, unit=f" {unit}", total=total))


def _converted(vectors: Tensor, to_tensor: bool) -> Tensor | NDArray[np.float32]:
    return vectors if to_tensor else np.asarray(vectors.float().cpu().numpy())


class CenterCLIP(nn.Module):
    """A CLIP whose vision tower clusters the tokens of neighbouring frames and keeps the centres.

    Use :meth:`from_pretrained` to open one.
    """

    engine = "torch"

    def __init__(
        self,
        backbone: Backbone,
        *,
        clustering: str | Setting = "none",
        frames: int = 12,
        max_tokens: int | None = None,
        similarity_rule: Rule = "mean",
        protocol: Protocol = "clean",
        chooser: Chooser | None = None,
        precision: Precision | None = None,
    ) -> None:
        super().__init__()
        if protocol not in get_args(Protocol):
            raise ModelError(f'the protocol must be "published" or "clean", got "{protocol}"')
        self.backbone = backbone.model
        self.temporal = backbone.temporal
        self.tokenizer = backbone.tokenizer
        self.preprocess = backbone.preprocess
        self.frames = frames
        context = getattr(backbone.model.config.text_config, "max_position_embeddings", DEFAULT_MAX_TOKENS)
        self.max_tokens: int = max_tokens or context
        if self.max_tokens > context:
            raise ModelError(f"max_tokens = {max_tokens}, but the text tower takes at most {context}")
        self.rule: Rule = similarity_rule
        self.protocol: Protocol = protocol
        self._precision = precision
        self._fingerprint: str | None = None  # of weights that were rounded since
        self.report: dict[str, Any] = {}  # what was measured of the precisions on this machine
        self.attachment: Attachment
        self.set_clustering(clustering, frames=frames, chooser=chooser)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        clustering: str | Setting | None = None,
        frames: int | None = None,
        max_tokens: int | None = None,
        similarity_rule: Rule | None = None,
        protocol: Protocol | None = None,
        temporal: Literal["none", "seqTransf"] | None = None,
        chooser: Chooser | None = None,
        precision: Precision | None = None,
        device: str | torch.device | None = None,
        trust_torchscript: bool = False,
        compile: bool = False,
    ) -> "CenterCLIP":
        """Open a model. What is not given comes from the model's ``centerclip.json``, else from the defaults.

        Args:
            name: a Hugging Face hub name, a folder, or an OpenAI, CLIP4Clip or CenterCLIP checkpoint file.
            revision: a branch, tag or commit of a model on the hub; its main branch by default.
            clustering: the paper's notation, ``"none"`` by default.
            frames: frames taken of a video, 12 by default.
            max_tokens: most tokens of a sentence; what the text tower takes by default.
            similarity_rule: ``"mean"`` (the paper's formula, default) or ``"renormalise"``.
            protocol: which segments of a short video count: ``"published"``, those whose last frame is real, as in the
                authors' procedure; ``"clean"`` (default), those with any real frame.
            temporal: ``"seqTransf"`` adds CLIP4clip's temporal transformer where the model has none, from CLIP's text
                tower or random (:meth:`TemporalTransformer.for_backbone`); ``"none"`` leaves out one that it has.
            chooser: ``(tokens [B, N, D], k) -> ids [B, K]`` in place of the clustering's method; a model that was saved
                with one opens only with one.
            precision: of the arithmetic when it encodes. By default float32 on a CPU, half on a CUDA GPU, except where
                published numbers are worked out. ``"bfloat16"`` on a CPU rounds the weights too: not for training.
            device: where to put it: ``"cpu"``, ``"cuda"``, ``"mps"``; a GPU if there is one.
            trust_torchscript: open a TorchScript archive that OpenAI did not publish; this runs the code inside.
            compile: compile the transformer blocks on first use; for a GPU only.
        """
        device = find_device(device)  # a wrong one is named before weights are read
        backbone = open_backbone(name, revision=revision, trust_torchscript=trust_torchscript)
        if temporal == "none":
            backbone.temporal = None
        saved = backbone.settings
        if saved.get("chooser") and clustering is None and chooser is None:
            raise ModelError(
                f"{name} was saved with a clustering method of its own, {saved['chooser']}: pass the function with "
                "chooser=, or another clustering"
            )
        path = Path(name) / SETTINGS_FILE
        try:
            model = cls(
                backbone,
                clustering=clustering if clustering is not None else saved_clustering(saved, path),
                frames=frames or saved.get("frames", 12),
                max_tokens=max_tokens or saved.get("max_tokens", saved.get("words")),  # "words" in older folders
                similarity_rule=similarity_rule or saved.get("similarity", "mean"),
                protocol=protocol or saved.get("protocol", "clean"),
                chooser=chooser,
                precision=precision,
            )
        except SettingError as error:
            if clustering is not None or frames is not None or chooser is not None:  # wrong here, not in the file
                raise
            raise ModelError(f'{path}: "clustering" does not fit the model: {error}') from error
        if temporal == "seqTransf" and model.temporal is None:
            model.temporal = TemporalTransformer.for_backbone(model.backbone, model.width)
        model = model.to(device).eval()
        if precision == "bfloat16" and model.device.type == "cpu":
            model._round_weights()
        if compile:
            if model.device.type != "cuda":
                raise ModelError("compile=True is for a GPU: torch's compiler fails on these blocks for a CPU")
            for block in model.attachment.blocks:
                block.compile(dynamic=False)
        return model

    # ---- settings -------------------------------------------------------------------------------------------

    @property
    def clustering(self) -> Setting:
        """The clustering in use; prints as the paper's notation."""
        return self.attachment.setting

    @property
    def segments(self) -> int:
        """How many vectors a video gets."""
        return self.clustering.segments(self.frames)

    @property
    def width(self) -> int:
        """The width of the vectors."""
        config = self.backbone.config
        return int(getattr(config, "projection_dim", None) or config.vision_config.hidden_size)

    @property
    def blocks(self) -> int:
        """Blocks of the vision tower."""
        return len(self.attachment.blocks)

    @property
    def folder(self) -> Path | None:
        """What it was opened from; None for a model that was never saved, or comes from a checkpoint file."""
        name = getattr(self.backbone.config, "name_or_path", "")
        return Path(name) if name else None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def on_gpu(self) -> bool:
        """Whether the processor is free while the model works."""
        return self.device.type != "cpu"

    @property
    def precision(self) -> str:
        """What it encodes in: ``"float32"``, ``"bfloat16"`` or, on older GPUs, ``"float16"``."""
        if self._precision is not None or self.device.type != "cuda":
            return self._precision or "float32"
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"

    def set_clustering(
        self, clustering: str | Setting, *, frames: int | None = None, chooser: Chooser | None = None
    ) -> None:
        """Change the clustering (and the number of frames) of an open model.

        Args:
            clustering: the paper's notation.
            frames: frames taken of a video; as before by default.
            chooser: ``(tokens [B, N, D], k) -> ids [B, K]`` in place of the clustering's method.
        """
        vision = self.backbone.vision_model
        setting = Setting.parse(clustering).with_chooser(chooser)
        frames = frames or self.frames
        if hasattr(self, "attachment"):  # checked before the old one goes: a wrong setting leaves the model as it was
            old = self.attachment
            setting.check(blocks=len(old.blocks), frames=frames, patches=old.patches)
        detach(vision)
        self.attachment = attach(vision, setting, frames=frames)
        self.frames = frames

    def gradient_checkpointing(self, on: bool = True) -> None:
        """Trade time for memory in training: activations inside blocks are computed again when needed."""
        if on:
            self.backbone.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            self.backbone.gradient_checkpointing_disable()

    # ---- tensors in, tensors out: what training calls -------------------------------------------------------

    def forward(self, rgb: Tensor, mask: Tensor | None, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """A batch of pairs: ``segments [V, S, D]``, ``segment_mask [V, S]``, ``text [B, D]``, ``logit_scale``."""
        segments, counts = self.video_features(rgb, mask)
        return {
            "segments": segments,
            "segment_mask": counts,
            "text": self.text_features(input_ids, attention_mask),
            "logit_scale": self.backbone.logit_scale,
        }

    def video_features(self, rgb: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Frames to segment vectors.

        Args:
            rgb: uint8 ``[V, T, H, W, 3]``, or float pixels as the tower takes them, ``[V, T, 3, H, W]``.
            mask: ``[V, T]``, True where a frame is real. Padding repeats the last frame.

        Returns:
            segments ``[V, S, D]`` of norm 1, and which of them count, ``[V, S]``.
        """
        if rgb.dim() != 5 or rgb.shape[1] != self.frames:
            raise ModelError(f"expected {self.frames} frames a video, [V, {self.frames}, ...], got {list(rgb.shape)}")
        pixels = self.preprocess(rgb.to(self.device)) if rgb.dtype == torch.uint8 else rgb.to(self.device)
        features = self.backbone.get_image_features(pixel_values=pixels.flatten(0, 1)).pooler_output
        vectors = features.unflatten(0, (len(rgb), -1))  # [V, S, D]
        if mask is None:
            mask = torch.ones(rgb.shape[:2], dtype=torch.bool)
        counts = segment_mask(mask.to(self.device), vectors.shape[1], self.protocol)
        if self.temporal is not None:
            vectors = self.temporal(vectors, counts)
        return normalize(vectors.float(), dim=2), counts

    def text_features(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Token ids ``[B, L]`` to vectors ``[B, D]`` of norm 1."""
        features = self.backbone.get_text_features(
            input_ids=input_ids.to(self.device), attention_mask=attention_mask.to(self.device)
        )
        return normalize(features.pooler_output.float(), dim=1)

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Sentences to ``input_ids`` and ``attention_mask``, ``[B, L]``; longer ones are cut at ``max_tokens``.

        For CLIP's text tower they are cleaned as CLIP's training text was.
        """
        if self.backbone.config.text_config.model_type == "clip_text_model":
            texts = [clean_text(text) for text in texts]
        # SigLIP was trained on sentences in small letters, padded to full length, without a mask.
        full = self.backbone.config.model_type == "siglip"
        if full:  # the tokenizer of SigLIP 2 leaves them as they are
            texts = [text.lower() for text in texts]
        batch = self.tokenizer(
            list(texts),
            padding="max_length" if full else True,
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        )
        mask = batch.get("attention_mask")
        if mask is None or full:
            mask = torch.ones_like(batch["input_ids"])
        return {"input_ids": batch["input_ids"], "attention_mask": mask}

    # ---- files and sentences in, vectors out: what people call ----------------------------------------------

    def encode_windows(self, rgb: Pixels, mask: Bools, *, half: bool = True) -> tuple[Floats, Bools]:
        """As :meth:`VideoEncoder.encode_windows`: squares ``[V, T, size, size, 3]`` to segments ``[V, S, D]``."""
        with self.inference(half=half):
            pixels = self.preprocess.normalise(torch.from_numpy(rgb).to(self.device))
            segments, counts = self.video_features(pixels, torch.from_numpy(mask))
        return segments.float().cpu().numpy(), counts.cpu().numpy()

    def encode_segments(self, rgb: Pixels, lengths: Sequence[int], *, half: bool = True) -> Floats | None:
        """As :meth:`VideoEncoder.encode_segments`."""
        vectors = np.empty((len(lengths), self.width), dtype=np.float32)
        starts, attached = np.cumsum([0, *lengths]), self.attachment
        shape = {"window": self.frames, "blocks": self.blocks, "patches": attached.patches}
        for n in sorted(set(lengths)):
            places = np.flatnonzero(np.equal(lengths, n))
            setting = attached.setting.for_segment(n, **shape) if self.temporal is None else None
            if setting is None:
                return None
            frames = rgb[(starts[places][:, None] + np.arange(n)).reshape(-1)]
            with self.inference(half=half), attached.for_segments(setting, n):
                pixels = self.preprocess.normalise(torch.from_numpy(frames).to(self.device))
                found = self.backbone.get_image_features(pixel_values=pixels).pooler_output
                vectors[places] = normalize(found.float(), dim=1).cpu().numpy()
        return vectors

    @contextmanager
    def record_centres(self) -> Iterator[list[Ids]]:
        """As :meth:`VideoEncoder.record_centres`."""
        ids: list[Ids] = []
        with self.attachment.record() as kept:
            yield ids
        ids += [each.ids.cpu().numpy() for each in kept]

    def encode_sentences(self, texts: Sequence[str]) -> Floats:
        """As :meth:`encode_text`, to NumPy."""
        return np.asarray(self.encode_text(texts).float().cpu().numpy())

    def encode_video(self, video: Video, *, times: Times | None = None) -> EncodedVideo:
        """One video: a path, or uint8 frames ``[T, H, W, 3]`` of NumPy or torch.

        Args:
            video: what to encode. Of an array with more or fewer frames than ``frames``, the bin centres are taken,
                or the last frame is repeated.
            times: ``[T]`` seconds of the frames of an array; one a second by default.
        """
        return self.encode_videos([video], times=None if times is None else [times])[0]

    def encode_videos(
        self, videos: Sequence[Video], *, times: Sequence[Times] | None = None, batch_size: int | None = None
    ) -> list[EncodedVideo]:
        """Several videos, each a path or uint8 frames ``[T, H, W, 3]``; decoded in threads, in batches that fit.

        Raises:
            VideoError: a file cannot be read; :meth:`iter_videos` goes on with the others.
        """
        encoded = []
        for each in self.iter_videos(videos, times=times, batch_size=batch_size):
            if isinstance(each, Exception):
                raise each
            encoded.append(each)
        return encoded

    def iter_videos(
        self,
        videos: Sequence[Video],
        *,
        times: Sequence[Times] | None = None,
        batch_size: int | None = None,
        half: bool = True,
    ) -> Iterator[EncodedVideo | Exception]:
        """Encode videos as :meth:`encode_videos` does, one by one; a file that cannot be read gives its error."""

        def decode(place: int, deliver: Deliver) -> list[tuple[float, float]]:
            squares, mask, bounds = self._squares(videos[place], None if times is None else times[place])
            deliver(0, Window(squares, mask))
            return self.spans(bounds, int(mask.sum()))

        for each in encode_in_order(self, range(len(videos)), decode, batch_size=batch_size, half=half):
            if each.error is not None:
                yield each.error
                continue
            spans = cast(list[tuple[float, float]], each.info)
            segments, mask = (torch.from_numpy(array).to(self.device) for array in (each.segments, each.mask))
            vector = video_vectors(segments[None], mask[None], rule=self.rule)[0]
            yield EncodedVideo(segments[: len(spans)], spans, vector)

    def encode_text(self, texts: str | Sequence[str], *, batch_size: int = 256, half: bool = True) -> Tensor:
        """Sentences to vectors ``[B, D]`` of norm 1; on a GPU in half precision, unless ``half`` is off."""
        sentences = [texts] if isinstance(texts, str) else list(texts)
        if not sentences:
            return torch.zeros(0, self.width, device=self.device)
        with self.inference(half=half):
            parts = [
                self.text_features(**self.tokenize(sentences[first : first + batch_size]))
                for first in range(0, len(sentences), batch_size)
            ]
        return torch.cat(parts)

    def similarity(
        self, text: Tensor | NDArray[np.floating], videos: Sequence[EncodedVideo] | Tensor | NDArray[np.floating]
    ) -> Tensor:
        """text ``[B, D]`` against videos, or their vectors ``[V, D]`` -> ``[B, V]``, by the model's rule."""
        sentences: Tensor = torch.atleast_2d(torch.as_tensor(text))
        if isinstance(videos, Tensor | np.ndarray):
            vectors = torch.atleast_2d(torch.as_tensor(videos))
            return sentences @ vectors.to(sentences.device, sentences.dtype).T
        return similarity(sentences, videos, rule=self.rule)

    # ---- as sentence-transformers calls it ------------------------------------------------------------------

    def encode_query(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """Sentences to vectors of norm 1, as ``encode_query`` of sentence-transformers.

        Args:
            texts: one sentence, which gives ``[D]``, or several, ``[B, D]``.
            batch_size: sentences at a time.
            show_progress_bar: on stderr.
            convert_to_tensor: a tensor on the model's device in place of a NumPy array.
        """
        sentences = [texts] if isinstance(texts, str) else list(texts)
        firsts = _bar(range(0, len(sentences), batch_size), "sentences", show_progress_bar)
        parts = [self.encode_text(sentences[first : first + batch_size]) for first in firsts]
        vectors = torch.cat(parts) if parts else self.encode_text([])
        return _converted(vectors[0] if isinstance(texts, str) else vectors, convert_to_tensor)

    def encode_document(
        self,
        videos: Video | Sequence[Video],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """Videos to one vector each, as ``encode_document`` of sentence-transformers.

        The product with the vector of :meth:`encode_query` is the similarity by the model's rule.

        Args:
            videos: one video (a path, or uint8 frames ``[T, H, W, 3]``), which gives ``[D]``, or several, ``[V, D]``.
            batch_size: videos at a time; from the free memory by default.
            show_progress_bar: on stderr.
            convert_to_tensor: a tensor on the model's device in place of a NumPy array.

        Raises:
            VideoError: a file cannot be read; :meth:`iter_videos` goes on with the others.
        """
        single = isinstance(videos, str | os.PathLike) or (hasattr(videos, "ndim") and videos.ndim == 4)
        several = cast(Sequence[Video], [videos] if single else videos)
        vectors = []
        encoded = self.iter_videos(several, batch_size=batch_size)
        for each in _bar(encoded, "videos", show_progress_bar, total=len(several)):
            if isinstance(each, Exception):
                raise each
            vectors.append(each.vector)
        stacked = torch.stack(vectors) if vectors else torch.zeros(0, self.width)
        return _converted(stacked[0] if single else stacked, convert_to_tensor)

    def batch_size(self) -> int:
        """How many videos to encode at a time, from the memory that is free."""
        vision = self.backbone.config.vision_config
        tokens = self.frames * (self.attachment.patches + self.attachment.prefix)
        per_video = tokens * (
            vision.intermediate_size if hasattr(vision, "intermediate_size") else 4 * vision.hidden_size
        )
        per_video *= 4 * 3  # float32; input, output and one more copy of the widest layer
        if self.device.type == "cuda":  # what nobody has, and what torch keeps for itself without using it
            unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            budget = GPU_SHARE * (torch.cuda.mem_get_info(self.device)[0] + unused)
        elif self.device.type == "mps":  # memory that the system shares
            budget = GPU_SHARE * (torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
        else:
            budget = CPU_BATCH_BYTES
        return int(min(64, max(1, budget // per_video)))

    def fingerprint(self) -> str:
        """A hash of what vectors depend on: weights and preprocessing, 24 hexadecimal digits.

        It is the same wherever the model was opened from, on every engine, with whatever clustering and frames.
        Buffers are left out: transformers adds and removes those.
        """
        return self._fingerprint or fingerprint_of(self.preprocess, self.parameters())

    def describe(self) -> dict[str, Any]:
        """As :meth:`VideoEncoder.describe`."""
        return {
            "engine": self.engine,
            "precision": self.precision,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "measured": self.report,
        }

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a Hugging Face folder (weights, config, tokenizer, preprocessing) and ``centerclip.json``.

        Each file is whole or absent: they are written beside the folder and moved in, ``centerclip.json`` last.
        """
        from safetensors.torch import save_file
        from transformers.utils import logging

        logging.disable_progress_bar()  # one file: nothing to watch
        target = Path(folder).expanduser()
        target.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "clustering": str(replace(self.clustering, chooser=None)),
            "frames": self.frames,
            "max_tokens": self.max_tokens,
            "similarity": self.rule,
            "protocol": self.protocol,
        }
        if self.clustering.chooser is not None:
            settings["chooser"] = name_of(self.clustering.chooser)
        elif (extension := methods.get(self.clustering.method)) is not None:
            settings["needs"] = extension.origin
        with scratch_folder(target) as scratch:
            self.backbone.save_pretrained(scratch)
            self.tokenizer.save_pretrained(scratch)
            if self.temporal is not None:
                save_file(self.temporal.state_dict(), scratch / TEMPORAL_FILE)
                settings["temporal"] = self.temporal.sizes()
            for file in scratch.iterdir():
                move_into_place(file, target / file.name)
        for name, content in ((PREPROCESSOR_FILES[0], self.preprocess.to_config()), (SETTINGS_FILE, settings)):
            write_atomic(target / name, json.dumps(content, indent=2) + "\n")

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool | None = None,
        license: str | None = None,
        results: "Sequence[Result]" = (),
        note: str = "",
        commit_message: str = "Upload a CenterCLIP model",
        revision: str | None = None,
    ) -> str:
        """Upload the model to the Hugging Face hub, with a model card; ``hf auth login`` comes first.

        Args:
            name: ``"owner/name"``; made where it is not there yet.
            private: whether others may not see it; as the owner's settings say by default.
            license: its identifier on the hub, such as ``"mit"``, for the card.
            results: :class:`~centerclip.evaluation.Evaluation` of the model, for the card.
            note: what people should know beside, for the card: the training data, limits.
            commit_message: of the upload.
            revision: a branch, made where it is not there yet; the main branch by default.

        Returns:
            the address of the commit.
        """
        from .card import model_card, push

        card = model_card(self, name, license=license, results=results, note=note)
        return push(self, name, card, private=private, message=commit_message, revision=revision)

    def in_bfloat16(self) -> "CenterCLIP":
        """A copy for a CPU that encodes in bfloat16, whether that is close to float32 or not."""
        other = copy.deepcopy(self)
        other._precision = "bfloat16"
        other._round_weights()
        return other

    # ---- inside ---------------------------------------------------------------------------------------------

    def _round_weights(self) -> None:
        self._fingerprint = self.fingerprint()
        for module in self.backbone.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):  # autocast would round them anew for every batch
                module.to(torch.bfloat16)
        if hasattr(self.backbone, "set_attn_implementation"):
            self.backbone.set_attn_implementation("eager")  # torch's own takes twice as long in bfloat16 on a CPU
        # A torch that was built without oneDNN does not have the function.
        if torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
            pack_layers(self.backbone.vision_model)

    def _squares(self, video: Video, times: Times | None) -> tuple[Pixels, Bools, tuple[float, float]]:
        """rgb ``[T, size, size, 3]``, mask ``[T]``, and the seconds that the frames cover."""
        if not isinstance(video, Tensor | np.ndarray):
            frames = read_squares(self.preprocess, video, self.frames)
            return frames.rgb, frames.mask, (0.0, frames.duration)
        rgb = video.cpu().numpy() if isinstance(video, Tensor) else video
        if rgb.ndim != 4 or rgb.shape[-1] != 3 or rgb.dtype != np.uint8 or not len(rgb):
            raise ModelError(f"a video is a path or uint8 frames [T, H, W, 3], got {rgb.dtype} {list(rgb.shape)}")
        count = len(rgb)
        seconds = [float(time) for time in (range(count) if times is None else times)]
        if len(seconds) != count:
            raise ModelError(f"{count} frames, but {len(seconds)} times")
        step = (seconds[-1] - seconds[0]) / (count - 1) if count > 1 else 1.0
        return *to_window(self.preprocess, rgb, self.frames), (seconds[0], seconds[-1] + step)

    def spans(self, bounds: tuple[float, float], real: int) -> list[tuple[float, float]]:
        """Start and end of every segment that counts; the ``real`` frames share the time evenly."""
        start, end = bounds
        per_frame, per_segment = (end - start) / real, self.frames // self.segments
        count = int(segment_mask(np.arange(self.frames)[None] < real, self.segments, self.protocol).sum())
        return [
            (start + per_frame * first, start + per_frame * min(first + per_segment, real))
            for first in range(0, count * per_segment, per_segment)
        ]

    @contextmanager
    def inference(self, *, half: bool = True) -> Iterator[None]:
        """Evaluation mode and no gradients inside a ``with`` block, in the model's :attr:`precision`.

        Half precision that nobody asked for, as on a GPU, is left out where ``half`` is off.
        """
        was_training, name = self.training, self.precision
        lower = name != "float32" and (half or self._precision is not None)
        dtype = getattr(torch, name) if lower else None
        self.eval()
        try:
            with torch.inference_mode(), torch.autocast(self.device.type, dtype=dtype, enabled=lower):
                yield
        finally:
            self.train(was_training)
