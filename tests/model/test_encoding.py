"""The encoder against transformers itself, and against a slow encoder made of obvious parts."""

import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize
from torch.optim.swa_utils import AveragedModel
from transformers import CLIPConfig, CLIPModel

from centerclip import CenterCLIP
from centerclip.cluster import SettingError, temporal_shift, token_shift
from centerclip.model import ModelError, TemporalTransformer, attach, detach, video_vectors
from centerclip.model.centerclip import find_device
from centerclip.model.packed import pack_layers
from tests.cluster import reference

from . import tiny


def slow_segments(model, rgb, reduce):
    """Run the tower block by block; ``reduce(after_block, hidden)`` may replace the hidden states. -> [V, S, D]."""
    backbone = model.backbone
    vision = backbone.vision_model
    pixels = model.preprocess(rgb).flatten(0, 1)
    hidden = vision.pre_layrnorm(vision.embeddings(pixels))
    for number, block in enumerate(vision.encoder.layers, start=1):
        hidden = reduce.before(hidden, "attention")
        hidden = hidden + block.self_attn(block.layer_norm1(hidden), attention_mask=None)[0]
        hidden = reduce.before(hidden, "mlp")
        hidden = hidden + block.mlp(block.layer_norm2(hidden))
        hidden = reduce.after(hidden, number)
    vectors = backbone.visual_projection(vision.post_layernorm(hidden[:, 0]))
    return normalize(vectors.unflatten(0, (len(rgb), -1)), dim=2)


class Reduce:
    """What happens between the blocks of the slow encoder; nothing by default."""

    def before(self, hidden, _what):
        return hidden

    def after(self, hidden, _block):
        return hidden


class Stages(Reduce):
    def __init__(self, stages, choose):
        self.stages, self.choose = stages, choose

    def after(self, hidden, block):
        for stage_block, frames, segments, k in self.stages:
            if block == stage_block:
                reduced = reference.segment_step(hidden.numpy(), frames, segments, k, self.choose)
                return torch.from_numpy(reduced).float()
        return hidden


def medoids(tokens, k):
    return reference.kmedoids(tokens, k)[0]


def bin_centres(tokens, k):
    return [(2 * i + 1) * len(tokens) // (2 * k) for i in range(k)]


@torch.no_grad()
def check(setting, reduce, frames=12):
    with_plain = tiny.center_clip("none", frames=frames)
    rgb = tiny.videos(frames=frames)
    expected = slow_segments(with_plain, rgb, reduce)
    model = tiny.center_clip(setting, frames=frames)
    segments, mask = model.video_features(rgb)
    assert segments.shape == expected.shape == (2, model.segments, 24)
    assert mask.all()
    assert torch.allclose(segments, expected, atol=1e-5)
    return segments


def test_none_equals_transformers():
    model = tiny.center_clip("none")
    rgb = tiny.videos()
    with torch.no_grad():
        segments, _ = model.video_features(rgb)
        pixels = model.preprocess(rgb).flatten(0, 1)
        expected = model.backbone.get_image_features(pixel_values=pixels).pooler_output
    assert torch.allclose(segments.flatten(0, 1), normalize(expected, dim=1), atol=1e-5)


def test_one_stage():
    segments = check("B2-4,9", Stages([(2, 12, 4, 9)], medoids))
    assert not torch.allclose(segments[:, 0], segments[:, 1], atol=1e-3)


def test_two_stages():
    check("B1-6,10 B3-3,8", Stages([(1, 12, 6, 10), (3, 6, 3, 8)], medoids))


def test_spectral():
    def choose(tokens, k):
        sigma = np.median([reference.distance(a, b) for i, a in enumerate(tokens) for b in tokens[:i]])
        return reference.spectral(tokens, k, 15, sigma=sigma)[0]

    check("spectral[sigma=median]:B2-4,9", Stages([(2, 12, 4, 9)], choose))


def test_sampling():
    check("sampling:B2-4,9", Stages([(2, 12, 4, 9)], bin_centres))


def test_pooling():
    class Mean(Reduce):
        def after(self, hidden, block):
            return (
                torch.stack([hidden[i : i + 3].mean(dim=0) for i in range(0, len(hidden), 3)]) if block == 2 else hidden
            )

    check("pooling:B2-4,16", Mean())


@pytest.mark.parametrize(
    ("setting", "shift", "where"),
    [("token-shift", token_shift, ("attention", "mlp")), ("temporal-shift", temporal_shift, ("attention",))],
)
def test_shifts(setting, shift, where):
    class Shift(Reduce):
        def before(self, hidden, what):
            return shift(hidden, frames=12) if what in where else hidden

    shifted = check(setting, Shift())
    assert not torch.allclose(shifted, tiny.center_clip("none").video_features(tiny.videos())[0], atol=1e-3)
    gradients = []
    for segments in (
        lambda model: model.video_features(tiny.videos())[0],
        lambda model: slow_segments(model, tiny.videos(), Shift()),
    ):
        model = tiny.center_clip(setting if not gradients else "none")
        segments(model)[:, ::2].sum().backward()
        gradients.append([each.grad for each in model.backbone.vision_model.parameters()])
    assert all(torch.allclose(a, b, atol=1e-5, rtol=1e-4) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    ("protocol", "setting", "expected"),
    [
        ("published", "B2-4,9", {12: 4, 11: 3, 9: 3, 7: 2, 4: 1, 3: 1, 2: 1, 1: 1}),
        ("clean", "B2-4,9", {12: 4, 11: 4, 9: 3, 7: 3, 4: 2, 3: 1, 2: 1, 1: 1}),
        ("published", "B1-6,10 B3-3,8", {12: 3, 11: 2, 8: 2, 7: 1, 3: 1}),
        ("clean", "B1-6,10 B3-3,8", {12: 3, 11: 3, 8: 2, 7: 2, 3: 1}),
        ("published", "none", {12: 12, 7: 7, 1: 1}),
        ("clean", "none", {12: 12, 7: 7, 1: 1}),
    ],
)
def test_segments_that_count(protocol, setting, expected):
    """``expected``: number of segments by number of real frames."""
    model = tiny.center_clip(setting, protocol=protocol)
    mask = torch.arange(12) < torch.tensor(list(expected))[:, None]
    before = mask.clone()
    with torch.no_grad():
        _, segment_mask = model.video_features(tiny.videos(len(expected)), mask)
    counts = list(expected.values())
    assert torch.equal(segment_mask, torch.arange(model.segments) < torch.tensor(counts)[:, None])
    assert torch.equal(mask, before)
    for frames, count in expected.items():
        video = model.encode_video(tiny.videos(1, frames)[0])
        assert len(video.segments) == len(video.spans) == count
        per_segment = 12 // model.segments
        assert video.spans[-1] == pytest.approx(((count - 1) * per_segment, min(count * per_segment, frames)))
        assert torch.allclose(video.vector, video.segments.mean(dim=0), atol=1e-5)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ModelError, match='protocol must be "published" or "clean", got "paper"'):
        tiny.center_clip(protocol="paper")


@torch.no_grad()
@pytest.mark.parametrize(("protocol", "count"), [("published", 1), ("clean", 2)])
def test_the_temporal_head_sees_the_segments_that_count(protocol, count):
    class Spy(torch.nn.Module):
        def forward(self, vectors, mask):
            self.mask = mask
            return vectors

    model = tiny.center_clip("B2-4,9", protocol=protocol)
    model.temporal = Spy()
    model.video_features(tiny.videos(1), torch.arange(12)[None] < 4)
    assert model.temporal.mask.tolist() == [[number < count for number in range(4)]]


def test_a_video_does_not_depend_on_its_batch():
    model = tiny.center_clip("B2-4,9")
    rgb = tiny.videos(count=3)
    together = model.encode_videos(list(rgb), batch_size=3)
    for video, one in zip(rgb, together, strict=True):
        alone = model.encode_video(video)
        assert torch.allclose(alone.segments, one.segments, atol=1e-5)
        assert torch.allclose(alone.vector, one.vector, atol=1e-5)


@pytest.mark.parametrize("rule", ["mean", "renormalise"])
def test_videos_of_different_length_and_size_in_one_batch(rule):
    model = tiny.center_clip("B2-4,9", similarity_rule=rule)
    lengths = [1, 2, 5, 12, 40]
    videos = [tiny.videos(1, frames, side=20 + frames)[0] for frames in lengths]
    encoded = model.encode_videos(videos)
    assert [len(video.segments) for video in encoded] == [1, 1, 2, 4, 4]
    for video, frames in zip(encoded, lengths, strict=True):
        assert torch.isfinite(video.segments).all()
        assert torch.allclose(video.segments.norm(dim=1), torch.ones(len(video.segments)), atol=1e-5)
        assert video.spans[0][0] == 0
        assert video.spans[-1][1] == pytest.approx(frames)
        assert all(a[1] == pytest.approx(b[0]) for a, b in zip(video.spans, video.spans[1:], strict=False))
        mean = video.segments.mean(dim=0)
        expected = normalize(mean, dim=0) if rule == "renormalise" else mean
        assert torch.allclose(video.vector, expected, atol=1e-5)
    text = model.encode_text(["a dog runs", "a cat"])
    similar = model.similarity(text, encoded)
    assert similar.shape == (2, 5)
    assert torch.allclose(similar[:, 3], text @ encoded[3].vector, atol=1e-5)
    if rule == "mean":
        assert torch.allclose(similar[0, 4], (encoded[4].segments @ text[0]).mean(), atol=1e-5)


def test_masked_segments_do_not_count():
    segments = normalize(torch.randn(2, 4, 8), dim=2)
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    vectors = video_vectors(segments, mask)
    assert torch.allclose(vectors[0], segments[0, :2].mean(dim=0))
    assert torch.isfinite(video_vectors(segments, mask, rule="renormalise")).all()
    with pytest.raises(ValueError, match='"mean" or "renormalise"'):
        video_vectors(segments, rule="max")


def test_times_of_a_tensor_give_its_spans():
    model = tiny.center_clip("B2-4,9")
    video = model.encode_video(tiny.videos(1)[0], times=torch.arange(12) * 0.5 + 10)
    assert video.spans == [(10.0, 11.5), (11.5, 13.0), (13.0, 14.5), (14.5, 16.0)]


def test_text_is_cut_padded_and_normalised():
    model = tiny.center_clip(max_tokens=8)
    tokens = model.tokenize(["a", "a very long sentence about a dog"])
    assert tokens["input_ids"].shape == (2, 8)
    assert tokens["attention_mask"][0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    vectors = model.encode_text(["a", "a very long sentence about a dog"])
    assert torch.allclose(vectors[:1], model.encode_text("a"), atol=1e-5)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(2), atol=1e-5)
    assert model.encode_text([]).shape == (0, 24)


def test_gradients_reach_every_weight_through_clustering():
    model = tiny.center_clip("B2-4,9").train()
    tokens = model.tokenize(["one", "two"])
    out = model(tiny.videos(), None, **tokens)
    loss = (out["text"] @ video_vectors(out["segments"], out["segment_mask"]).T * out["logit_scale"].exp()).logsumexp(1)
    loss.sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []


@pytest.mark.parametrize("setting", ["B2-4,9", "B1-6,10 B3-3,8", "sampling:B2-4,9", "token-shift"])
def test_gradient_checkpointing_changes_nothing_but_memory(setting):
    gradients = []
    for on in (False, True):
        model = tiny.center_clip(setting).train()
        model.gradient_checkpointing(on)
        torch.manual_seed(5)
        segments, _ = model.video_features(tiny.videos())
        segments.sum().backward()
        gradients.append([p.grad.clone() for p in model.backbone.vision_model.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


def test_temporal_head_is_trained_and_ignores_padding():
    torch.manual_seed(0)
    head = TemporalTransformer(24, heads=2, layers=2)
    vectors = torch.randn(2, 4, 24)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    out = head(vectors, mask)
    changed = vectors.clone()
    changed[1, 2:] = 100
    assert torch.allclose(out[1, :2], head(changed, mask)[1, :2], atol=1e-5)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    with pytest.raises(ValueError, match="77 positions"):
        head(torch.randn(1, 78, 24))


def text_clip(**changes):
    """A CLIP whose text tower is as wide as the vectors, as OpenAI's are."""
    torch.manual_seed(0)
    text = {"hidden_size": 24, "intermediate_size": 96, "num_attention_heads": 3, "num_hidden_layers": 5, **changes}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    vision |= {"image_size": tiny.SIDE, "patch_size": tiny.PATCH}
    return CLIPModel(
        CLIPConfig(projection_dim=24, text_config={"vocab_size": 600, **text}, vision_config=vision)
    ).eval()


@torch.no_grad()
@pytest.mark.parametrize("text_positions", [77, 90, 40])
def test_a_new_temporal_head_starts_from_clips_text_tower(tmp_path, text_positions):
    clip = text_clip(max_position_embeddings=text_positions)
    clip.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    head = CenterCLIP.from_pretrained(tmp_path, temporal="seqTransf", device="cpu").temporal
    assert head.sizes() == {"width": 24, "layers": 4, "heads": 3, "positions": 77}
    common = min(77, text_positions)
    positions = clip.text_model.embeddings.position_embedding.weight
    assert torch.equal(head.positions.weight[:common], positions[:common])
    hidden = torch.randn(2, 6, 24)
    expected = hidden + positions[:6]
    for block in clip.text_model.encoder.layers[:4]:  # each with full attention and the epsilon that seqTransf has
        block.layer_norm1.eps = block.layer_norm2.eps = 1e-12
        expected = block(expected, attention_mask=torch.zeros(2, 1, 6, 6))
    assert torch.allclose(head(hidden), hidden + expected, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: text_clip(hidden_size=48, num_attention_heads=3),
        lambda: text_clip(intermediate_size=48),
        lambda: text_clip(num_hidden_layers=3),
        lambda: text_clip(hidden_act="gelu"),
        tiny.siglip,
        tiny.dual_encoder,
    ],
    ids=["other width", "other MLP", "few blocks", "other activation", "SigLIP", "BERT"],
)
def test_a_temporal_head_that_no_text_tower_fits_starts_random(tmp_path, make):
    make().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    torch.manual_seed(1)
    head = CenterCLIP.from_pretrained(tmp_path, temporal="seqTransf", device="cpu").temporal
    torch.manual_seed(1)
    expected = TemporalTransformer(head.sizes()["width"])
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), expected.parameters(), strict=True))


def test_changing_the_clustering_of_an_open_model():
    model = tiny.center_clip("none")
    before = model.encode_video(tiny.videos(1)[0])
    model.set_clustering("B2-3,9")
    assert str(model.clustering) == "B2-3,9"
    assert len(model.encode_video(tiny.videos(1)[0]).segments) == 3
    with pytest.raises(SettingError, match="4 blocks"):
        model.set_clustering("B6-4,9")
    assert len(model.encode_video(tiny.videos(1)[0]).segments) == 3
    model.set_clustering("none")
    assert torch.equal(model.encode_video(tiny.videos(1)[0]).segments, before.segments)


def first_tokens(tokens, k):
    return torch.arange(k, device=tokens.device).expand(len(tokens), k)


def test_a_method_of_ones_own_is_printed_and_survives_a_change_back():
    video = tiny.videos(1)[0]
    model = tiny.center_clip("B2-4,9")
    model.set_clustering("kmedoids[normalise]:B2-4,9", chooser=first_tokens)
    own, setting = model.encode_video(video).segments, model.clustering
    assert str(setting) == "custom(first_tokens)[normalise]:B2-4,9"
    model.set_clustering("B2-4,9")
    assert str(model.clustering) == "B2-4,9"
    assert not torch.equal(model.encode_video(video).segments, own)
    model.set_clustering(setting)
    assert torch.equal(model.encode_video(video).segments, own)
    with pytest.raises(SettingError, match="a method of your own"):
        model.set_clustering(str(setting))


@pytest.mark.parametrize("setting", ["none", "temporal-shift", "pooling:B2-4,16"])
def test_a_chooser_without_anything_to_choose_is_refused(setting):
    model = tiny.center_clip("B2-4,9")
    with pytest.raises(SettingError, match="chooses no tokens"):
        model.set_clustering(setting, chooser=first_tokens)
    assert len(model.encode_video(tiny.videos(1)[0]).segments) == 4  # the model is as it was


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu"), (True, False, "cuda")],
)
def test_the_device_is_a_gpu_if_there_is_one(cuda, mps, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert find_device(None) == torch.device(expected)
    assert find_device("cpu") == torch.device("cpu")


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ModelError, match='torch finds no device "cuda:1" on this machine: choose cpu'):
        find_device("cuda:1")
    with pytest.raises(ModelError, match='there is no device "gpu": choose cuda, mps, cpu'):
        find_device("gpu")


def test_an_apple_gpu_encodes_in_full_precision_and_in_batches_that_fit(monkeypatch):
    model = tiny.center_clip("B2-4,9")
    monkeypatch.setattr(CenterCLIP, "device", torch.device("mps"))
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 2**30)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 2**30 - 2**24)
    few = model.batch_size()
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 0)
    assert 1 <= few < model.batch_size()
    with model.inference():
        assert not torch.is_autocast_enabled("mps")


def test_what_torch_keeps_of_a_gpu_without_using_it_counts_as_free(monkeypatch):
    model = tiny.center_clip("B2-4,9")
    monkeypatch.setattr(CenterCLIP, "device", torch.device("cuda"))
    numbers = {"mem_get_info": (2**22, 2**30), "memory_reserved": 2**29, "memory_allocated": 2**29}
    for name, number in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, number=number: number)
    few = model.batch_size()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    assert 1 <= few < model.batch_size()


def test_encoding_leaves_the_training_mode_as_it_was():
    model = tiny.center_clip("sampling:B2-4,9").train()
    first = model.encode_video(tiny.videos(1)[0])
    assert model.training
    assert torch.equal(first.segments, model.encode_video(tiny.videos(1)[0]).segments)


@pytest.mark.parametrize(
    ("video", "message"),
    [
        (torch.zeros(12, 8, 8, 3), "uint8 frames"),
        (torch.zeros(12, 3, 8, 8, dtype=torch.uint8), "uint8 frames"),
        (torch.zeros(0, 8, 8, 3, dtype=torch.uint8), "uint8 frames"),
    ],
)
def test_what_is_not_a_video_is_refused(video, message):
    with pytest.raises(ModelError, match=message):
        tiny.center_clip().encode_video(video)


def test_record_tells_where_kept_tokens_came_from():
    model = tiny.center_clip("B1-6,10 B3-3,8")
    with model.attachment.record() as steps:
        model.encode_video(tiny.videos(1)[0])
    assert [str(step.stage) for step in steps] == ["B1-6,10", "B3-3,8"]
    assert steps[1].places.shape == (3, 8, 3)
    frames = steps[1].places[:, :, 0]
    assert all(segment * 4 <= frame < segment * 4 + 4 for segment in range(3) for frame in frames[segment].tolist())


def test_attach_twice_is_refused():
    model = tiny.clip()
    attach(model.vision_model, "B2-4,9", frames=12)
    with pytest.raises(ModelError, match="already has B2-4,9 attached"):
        attach(model.vision_model, "B2-4,9", frames=12)


def test_fingerprint_depends_on_weights_and_pixels_alone():
    model = tiny.center_clip("none")
    fingerprint = model.fingerprint()
    assert len(fingerprint) == 24
    assert tiny.center_clip("B2-4,9", frames=8).fingerprint() == fingerprint
    model.backbone.register_buffer("position_ids", torch.arange(9))  # as transformers adds and removes
    model.preprocess = replace(model.preprocess, short_side=tiny.SIDE)
    assert model.fingerprint() == fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"mean": (0.5, 0.5, 0.5)},
        {"std": (0.5, 0.5, 0.5)},
        {"filter": "bilinear"},
        {"crop": False},
        {"short_side": 40},
        {"size": 24},
    ],
)
def test_fingerprint_changes_with_what_determines_pixels(change):
    model = tiny.center_clip()
    before = model.fingerprint()
    model.preprocess = replace(model.preprocess, **change)
    assert model.fingerprint() != before


def test_fingerprint_changes_with_any_parameter():
    model = tiny.center_clip()
    seen = {model.fingerprint()}
    model.temporal = TemporalTransformer(24, heads=2, layers=1)
    seen.add(model.fingerprint())
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.data += 1e-3
        seen.add(model.fingerprint())
    assert len(seen) == 2 + len(parameters)


COPYABLE = ["B2-4,9", "attention:B2-4,9", "means:B1-6,10 B3-3,8", "token-shift", "temporal-shift", "pooling:B2-4,16"]


def saved_and_loaded(model):
    torch.save(model, file := io.BytesIO())
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, saved_and_loaded, lambda model: AveragedModel(model).module])
@pytest.mark.parametrize("setting", COPYABLE)
def test_a_copy_is_independent(setting, copied):
    model, video = tiny.center_clip(setting), tiny.videos(1)[0]
    expected = model.encode_video(video).segments
    other = copied(model)
    assert torch.equal(other.encode_video(video).segments, expected)
    other.set_clustering("B2-3,9")
    assert len(other.encode_video(video).segments) == 3
    assert str(model.clustering) == setting
    assert torch.equal(model.encode_video(video).segments, expected)
    with other.attachment.record() as kept:
        model.encode_video(video)
        assert kept == []
        other.encode_video(video)
    assert len(kept) == 1


@torch.no_grad()
@pytest.mark.parametrize("setting", COPYABLE)
def test_detaching_a_copy_undoes_its_clustering_alone(setting):
    plain, video = tiny.center_clip("none"), tiny.videos()
    pixels = plain.preprocess(video).flatten(0, 1)
    model = tiny.center_clip(setting)
    expected = model.backbone.vision_model(pixels).pooler_output
    other = copy.deepcopy(model)
    detach(other.backbone.vision_model)
    assert torch.equal(
        other.backbone.vision_model(pixels).pooler_output, plain.backbone.vision_model(pixels).pooler_output
    )
    assert torch.equal(model.backbone.vision_model(pixels).pooler_output, expected)
    tower = copy.deepcopy(model.backbone.vision_model)
    detach(tower)
    assert len(tower(pixels).pooler_output) == len(pixels)
    attach(tower, "B2-4,9", frames=12)


def test_queries_and_documents_as_in_sentence_transformers(capsys):
    model = tiny.center_clip("B2-4,9", similarity_rule="renormalise")
    videos, texts = list(tiny.videos(3)), [f"a dog {number}" for number in range(5)]
    queries, documents = model.encode_query(texts, batch_size=2), model.encode_document(videos, batch_size=2)
    assert isinstance(queries, np.ndarray)
    assert isinstance(documents, np.ndarray)
    assert (queries.shape, documents.shape) == ((5, 24), (3, 24))
    expected = model.similarity(model.encode_text(texts), model.encode_videos(videos))
    assert np.allclose(queries @ documents.T, expected, atol=1e-5)
    assert torch.allclose(model.similarity(queries, documents), expected, atol=1e-5)
    one, tensor = model.encode_query(texts[1]), model.encode_query(texts, convert_to_tensor=True)
    assert one.shape == (24,)
    assert np.allclose(one, queries[1], atol=1e-6)
    assert isinstance(tensor, torch.Tensor)
    for single in (videos[0], videos[0].numpy()):
        assert np.allclose(model.encode_document(single), documents[0], atol=1e-5)
    assert torch.is_tensor(model.encode_document(videos, convert_to_tensor=True))
    assert model.encode_query([]).shape == model.encode_document([]).shape == (0, 24)
    assert capsys.readouterr().err == ""
    model.encode_document(videos, show_progress_bar=True)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason="this processor, or this torch, has no bfloat16",
)
def test_layers_packed_for_bfloat16_give_what_torch_gives():
    torch.manual_seed(0)
    tower = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4, bias=False), nn.Flatten(2), nn.Linear(9, 24)).bfloat16()
    pixels = torch.randn(2, 3, 14, 12, dtype=torch.bfloat16)  # two rows are left over
    with torch.inference_mode():
        expected = tower(pixels)
        pack_layers(tower)
        for packed in (tower, copy.deepcopy(tower)):
            assert type(packed[0]) is not nn.Conv2d
            assert type(packed[2]) is not nn.Linear
            torch.testing.assert_close(packed(pixels), expected, atol=0.02, rtol=0.02)
            torch.testing.assert_close(copy.deepcopy(packed)(pixels), expected, atol=0.02, rtol=0.02)  # after its use
    assert set(tower.state_dict()) == {"0.weight", "2.weight", "2.bias"}
