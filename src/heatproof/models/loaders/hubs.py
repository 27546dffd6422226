"""Networks of torchvision, timm and Hugging Face, with the preprocessing that belongs to their weights.

`outputs` makes a bare network, with random weights and that many classes, for weights that come from a file. Random
weights are the same in every process: a study that is shared among workers, or resumed, names one network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heatproof.data.hub import fetched, name_and_revision, tokenizer_of
from heatproof.errors import UserError, nearest, unknown
from heatproof.models import Model
from heatproof.models.decoders import decoder, embedding_path
from heatproof.models.network import Parts, frozen_copy, scores_in

RANDOM = "none"
BYTE = 255
"""The largest pixel value that an image processor of transformers starts from; data here are in [0, 1]."""


@contextmanager
def same_random_weights() -> Iterator[None]:
    """Draw initial weights from a fixed state of torch's generator, and put its own state back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def from_torchvision(rest: str, outputs: int | None = None) -> Parts:
    """Return a network of torchvision, by a name such as `resnet50`, with its normalisation and class names.

    `resnet50` has the default weights, `resnet50@IMAGENET1K_V1` those, and `resnet50@none` random ones. With `outputs` the
    network is untrained and has that many classes.
    """
    from torchvision import models

    name, _, weights_name = rest.partition("@")
    if name not in models.list_models():
        raise unknown("torchvision model", name, models.list_models())
    choices = models.get_model_weights(name)
    if weights_name not in ("", RANDOM) and weights_name not in choices.__members__:
        raise unknown(f"weights of {name}", weights_name, [RANDOM, *choices.__members__])
    is_named = weights_name in choices.__members__
    weights = choices[weights_name] if is_named else choices.DEFAULT
    # Random weights get the normalisation of the default ones.
    preset = weights.transforms()
    mean, std = getattr(preset, "mean", None), getattr(preset, "std", None)
    if outputs is not None:
        with same_random_weights():
            return Parts(models.get_model(name, weights=None, num_classes=outputs), mean, std)
    try:
        with same_random_weights():
            module = models.get_model(name, weights=None if weights_name == RANDOM else weights)
    except OSError as error:
        path = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
        raise UserError(
            f"cannot fetch the weights of {name} ({error}); put {weights.url} at {path}, "
            f"or use torchvision:{name}@none for random weights"
        ) from error
    return Parts(module, mean, std, weights.meta.get("categories"))


def from_timm(rest: str, outputs: int | None = None) -> Parts:
    """Return a network of timm, by a name such as `vit_base_patch16_224`, with its normalisation.

    It is pretrained; `vit_base_patch16_224@none` has random weights. With `outputs` it is untrained and has that many
    classes.
    """
    import timm

    name, _, weights_name = rest.partition("@")
    if weights_name not in ("", RANDOM):
        raise unknown(f"weights of {name}", weights_name, [RANDOM])
    if not timm.is_model(name):
        close = nearest(name, timm.list_models(), n=5)
        raise UserError(f"timm has no model {name!r}; the nearest are {', '.join(close) or 'none'}")
    try:
        with same_random_weights():
            pretrained = outputs is None and weights_name != RANDOM
            module = timm.create_model(name, pretrained=pretrained, num_classes=outputs)
    except OSError as error:
        source = timm.get_pretrained_cfg_value(name, "hf_hub_id") or "its repository"
        raise UserError(
            f"cannot fetch the weights of {name} ({str(error).splitlines()[0]})\n"
            f"  without a network, take model.safetensors of {source} and name it: "
            f"{{source: file:model.safetensors, architecture: timm:{name}}}; timm:{name}@none has random weights"
        ) from error
    config = timm.data.resolve_model_data_config(module)
    return Parts(module, config["mean"], config["std"])


def from_hf(rest: str, outputs: int | None = None) -> Parts:
    """Return a classifier of images or of text from the Hugging Face hub, with its normalisation or embedding layer.

    `rest` is `owner/name`, `owner/name@revision`, or a folder with a copy. With `outputs` it is untrained and has that
    many classes. `@none` has random weights and needs config.json alone.
    """
    import transformers

    name, revision = name_and_revision(rest)
    is_random = revision == RANDOM or outputs is not None
    where: dict[str, Any] = {
        "revision": "main" if revision == RANDOM else revision,
        "trust_remote_code": False,
    }
    config = fetched(
        name, "config.json", lambda: transformers.AutoConfig.from_pretrained(name, **where)
    )
    reads_text = _reads_text(config, name)
    data = "Sequence" if reads_text else "Image"
    auto_class = getattr(transformers, f"AutoModelFor{data}Classification")
    if outputs is not None:
        config.num_labels = outputs
    if is_random:
        with same_random_weights():
            module = auto_class.from_config(config, trust_remote_code=False)
    else:
        files = "config.json and model.safetensors"
        module = fetched(
            name, files, lambda: auto_class.from_pretrained(name, config=config, **where)
        )
    module = module.float().eval()  # some are stored in 16 bits
    labels: Mapping[int, str] = module.config.id2label
    classes = [labels[i] for i in sorted(labels)]
    if reads_text:
        return Parts(module, classes=classes, embedding=_embedding(module, name))
    mean, std = _normalisation(name, where, optional=is_random)
    return Parts(module, mean, std, classes)


def from_decoder(rest: str, options: Sequence[str] = ()) -> Model:
    """Return a language model from the Hugging Face hub, which explains an answer or chooses among `options`.

    `rest` is `owner/name`, `owner/name@revision`, or a folder with a copy.
    """
    from transformers import AutoModelForCausalLM

    name, revision = name_and_revision(rest)
    files = "config.json and model.safetensors"
    network = fetched(
        name,
        files,
        lambda: AutoModelForCausalLM.from_pretrained(
            name, revision=revision, trust_remote_code=False
        ),
    )
    tokenizer = tokenizer_of(f"hf:{rest}")
    model = decoder(network.float().eval(), tokenizer, options=options, name=Path(name).name)
    model.tokenizer = tokenizer
    return model


def _reads_text(config: Any, name: str) -> bool:
    """Return whether a configuration of transformers is that of a text classifier, not of an image classifier.

    Any other kind of model is refused; `name` is for the error.
    """
    import transformers

    named = " ".join(config.architectures or [])
    text = type(config) in transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    images = type(config) in transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    if not text and not images:
        raise UserError(
            f"{name} is a {config.model_type}; classifiers of images and of text are read"
        )
    return "SequenceClassification" in named if text and images else text


def _normalisation(
    name: str, where: Mapping[str, Any], optional: bool
) -> tuple[Sequence[float] | None, ...]:
    """Return the mean and std that a model on the hub normalises pixels in [0, 1] by, from its image processor's file.

    (None, None) if the file is missing and `optional`. `where` are arguments for the hub, such as the revision.
    """
    from transformers import AutoImageProcessor

    def read() -> Any:
        return AutoImageProcessor.from_pretrained(name, **where)

    try:
        processor: Any = read()
    except OSError:
        if optional:
            return None, None
        processor = fetched(name, "preprocessor_config.json", read)
    return _mean_and_std(processor, name)


def _embedding(module: nn.Module, name: str) -> str | None:
    """Return the path of the layer that turns token ids into vectors; None if the network does not take vectors.

    A short pass with ids and one with vectors must agree.
    A text is padded with id 0 where its attention mask is 0. A network that looks for its own padding id instead, as
    decoders do, would read other texts than it is given, so it is refused.
    """
    layer: Any = module.get_input_embeddings()  # type: ignore[operator]
    ids = torch.arange(5, 9)[None] % int(layer.weight.shape[0])
    padded = torch.cat([ids, torch.zeros(1, 3, dtype=ids.dtype)], 1)
    mask = (torch.arange(padded.shape[1]) < ids.shape[1]).long()[None]
    with torch.no_grad():
        alone = module(ids, attention_mask=torch.ones_like(ids)).logits
        if not _close(module(padded, attention_mask=mask).logits, alone):
            raise UserError(
                f"{name} reads the padding of a text; encoders such as BERT, RoBERTa and DistilBERT do not"
            )
        try:
            by_vectors = module(inputs_embeds=layer(padded), attention_mask=mask).logits
        except (NotImplementedError, TypeError, ValueError):  # it takes ids alone
            return None
    return embedding_path(module) if _close(by_vectors, alone) else None


def _close(a: Tensor, b: Tensor) -> bool:
    """Return whether two outputs are equal up to rounding errors."""
    return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-4))


def from_transformers(
    network: Any,
    processor: Any = None,
    *,
    options: Sequence[Any] = (),
    classes: Sequence[str] | None = None,
    name: str | None = None,
    task: Any = None,
) -> Model:
    """Return a `Model` of an object of transformers: a classifier of images, text or audio, a decoder, or a pipeline.

    `processor` is its tokenizer, image processor or feature extractor. From an image processor come mean and std, from a
    feature extractor whether audio is normalised; a tokenizer turns lists of texts into samples, and says which tokens
    are special. The layer that embeds tokens is the network's own, classes are those of its configuration. Decoders
    take `options` as `heatproof.decoder` does. Samples of audio are series (1, T).

    >>> from_transformers(nn.Linear(2, 2))
    Traceback (most recent call last):
    heatproof.errors.UserError: from_transformers(...) needs a model or a pipeline of transformers, got Linear
    """
    if not isinstance(network, nn.Module) and isinstance(
        getattr(network, "model", None), nn.Module
    ):
        processor = processor or _processor_of(network)  # a pipeline
        network = network.model
    if not is_of_transformers(network):
        raise UserError(
            f"from_transformers(...) needs a model or a pipeline of transformers, got {type(network).__name__}"
        )
    name = name or type(network).__name__
    if type(network).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        model = decoder(network.eval(), processor, options=options, name=name)
        model.tokenizer = processor
        return model
    if classes is None:
        labels: Mapping[int, str] = network.config.id2label or {}
        classes = [labels[i] for i in sorted(labels)]
    if task is None and (len(classes) == 1 or network.config.problem_type == "regression"):
        task, classes = "regression", None
    if hasattr(network.config, "conv_kernel"):  # raw audio, as wav2vec 2 and its kin read it
        is_normalised = bool(getattr(processor, "do_normalize", False))
        return Model(RawAudio(network, is_normalised), classes=classes, name=name, task=task)
    if network.main_input_name == "input_ids":
        # Probed in eval mode: dropout would make every pass another one.
        embedding = _embedding(frozen_copy(network), name)
        model = Model(network, classes=classes, name=name, embedding=embedding, task=task)
        model.tokenizer = processor
        return model
    mean, std = (None, None) if processor is None else _mean_and_std(processor, name)
    model = Model(network, mean=mean, std=std, classes=classes, name=name, task=task)
    model.image_processor = processor
    return model


def is_of_transformers(network: Any) -> bool:
    """Whether something is a model of transformers, known by its classes, so that the library is not imported.

    >>> is_of_transformers(nn.Linear(1, 1))
    False
    """
    return any(kind.__name__ == "PreTrainedModel" for kind in type(network).__mro__)


def is_pipeline(thing: Any) -> bool:
    """Whether something is a pipeline of transformers.

    >>> is_pipeline(nn.Linear(1, 1))
    False
    """
    return any(
        kind.__name__ == "Pipeline" and kind.__module__.startswith("transformers.")
        for kind in type(thing).__mro__
    )


def _processor_of(pipeline: Any) -> Any:
    """Return the image processor, feature extractor or tokenizer of a pipeline."""
    for attribute in ("image_processor", "feature_extractor", "tokenizer"):
        processor = getattr(pipeline, attribute, None)
        if processor is not None:
            return processor
    return None


class RawAudio(nn.Module):
    """A network of raw audio (B, T) as one of series (B, 1, T), normalised sample by sample where it was trained so."""

    def __init__(self, network: nn.Module, is_normalised: bool) -> None:
        super().__init__()
        self.network = network
        self.is_normalised = is_normalised

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (B, classes) of audio x (B, 1, T)."""
        waves = x.flatten(1)
        if self.is_normalised:
            # As `Wav2Vec2FeatureExtractor` does.
            variance = waves.var(1, correction=0, keepdim=True)
            waves = (waves - waves.mean(1, keepdim=True)) / torch.sqrt(variance + 1e-7)
        return scores_in(self.network(waves))


def _mean_and_std(processor: Any, name: str) -> tuple[Sequence[float] | None, ...]:
    """Return the mean and std that an image processor of transformers normalises pixels in [0, 1] by.

    It computes (255·x·factor − offset − mean) / std, where it rescales and normalises at all.
    """
    if getattr(processor, "do_flip_channel_order", False):
        raise UserError(
            f"{name} reads colours as blue, green, red; reverse them in a function: python:file.py:make"
        )
    does_rescale = getattr(processor, "do_rescale", True)
    scale = BYTE * processor.rescale_factor if does_rescale else BYTE
    # Some processors rescale to [−1, 1].
    offset = 1.0 if getattr(processor, "rescale_offset", False) else 0.0
    has_mean = getattr(processor, "image_mean", None) is not None
    normalises = getattr(processor, "do_normalize", True) and has_mean
    if not normalises and abs(scale - 1) < 1e-6 and not offset:
        return None, None
    mean, std = [0.0] * 3, [1.0] * 3
    if normalises:
        mean, std = processor.image_mean, processor.image_std
    # (scale·x − offset − mean) / std = (x − (mean + offset) / scale) / (std / scale)
    mean_of_pixels = [(of_channel + offset) / scale for of_channel in mean]
    std_of_pixels = [of_channel / scale for of_channel in std]
    return mean_of_pixels, std_of_pixels
