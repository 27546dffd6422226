"""Objects of transformers and datasets: tiny ones, made from a configuration with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import heatproof
from heatproof import open_data
from heatproof.features import Tokens
from heatproof.models.loaders import load_model

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *["a", "very", "good", "bad", "film", "not", "the", "plot", "is"],
]
TEXTS = ["a very good film", "the plot is bad", "not a good film", "a film", "very bad"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]")
    core = tokenizers.Tokenizer(model)
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, **{f"{name}_token": word for name, word in names.items()}
    )


def bert(classes: int = 2) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, num_labels=classes,
        id2label={0: "bad", 1: "good"} if classes == 2 else None,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_positions=32, n_embd=16, n_layer=1, n_head=2
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_a_text_classifier_brings_its_embedding_classes_and_tokenizer(tokenizer: Any) -> None:
    network = bert().train()
    model = load_model((network, tokenizer))
    assert model.classes == ("bad", "good")
    assert model.embedding == "bert.embeddings.word_embeddings"
    assert network.training  # the object itself stays as it was
    run = heatproof.evaluate(
        (network, tokenizer), TEXTS, ["integrated_gradients", "lime", "random"], ["faithfulness"]
    )
    table = run.table().query("explainer == 'lime'")
    assert (table.status == "ok").any()
    features = run.manifest.study.explainers["lime"].parameters["features"]
    assert features["special"] == [0, 2, 3, 4] or set(features["special"]) == {0, 2, 3, 4}
    assert features["mask_token"] == 4


def test_the_predictions_are_those_of_the_object(tokenizer: Any) -> None:
    network = bert().eval()
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = network(**encoded).logits
    model = load_model(network)
    for data in (
        open_data(encoded),
        open_data(tokenizer(TEXTS)),  # lists of several lengths
        open_data(TEXTS, vocabulary=tokenizer),
    ):
        batch = data.load(range(len(TEXTS))).batch
        torch.testing.assert_close(model.logits(model.inputs(batch), batch.aux), expected)


def test_the_output_of_a_tokenizer_is_data_and_says_what_is_special(tokenizer: Any) -> None:
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    data = open_data(encoded)
    assert Tokens.of(data.tokenizer).special == (2, 3, 0)
    assert data.tokenizer.convert_ids_to_tokens([2, 7]) == ["[CLS]", "good"]
    run = heatproof.evaluate(bert(), encoded, ["lime", "saliency"], ["agreement"])
    assert (run.table().status == "ok").any()


def test_a_dataset_of_texts_and_one_of_token_ids(tokenizer: Any) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    table = datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, 0, 1, 0]}, features=features)
    tokenised = table.map(lambda row: tokenizer(row["text"]))
    maps = [
        heatproof.explain((bert(), tokenizer), data, "saliency")
        for data in (table, tokenised, tokenised.with_format("torch"))
    ]
    np.testing.assert_allclose(maps[0], maps[1], atol=1e-6)
    np.testing.assert_allclose(maps[0], maps[2], atol=1e-6)
    opened = open_data(table, vocabulary=tokenizer)
    assert opened.class_names == ("bad", "good")
    assert opened.labels == (1, 0, 0, 1, 0)


def test_an_image_classifier_normalises_as_its_processor() -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=3,
    )  # fmt: skip
    network = transformers.ViTForImageClassification(config).eval()
    processor = transformers.ViTImageProcessor(
        size={"height": 16, "width": 16}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.4]
    )
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)) for _ in range(4)]
    with torch.no_grad():
        expected = network(**processor(pictures, return_tensors="pt")).logits
    x = torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) / 255 for p in pictures])
    for given in (
        (network, processor),
        transformers.pipeline("image-classification", model=network, image_processor=processor),
    ):
        model = load_model(given)
        batch = open_data(x).load(range(4)).batch
        torch.testing.assert_close(
            model.logits(model.inputs(batch)), expected, rtol=1e-4, atol=1e-4
        )
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    table = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 2, 0]})
    maps = heatproof.explain((network, processor), open_data(table, size=16), "saliency")
    assert maps.shape == (4, 3, 16, 16)


def test_a_decoder_explains_prompts_given_as_texts(tokenizer: Any) -> None:
    network = gpt2()
    model = load_model((network, tokenizer))
    assert model.task.name == "answer"
    run = heatproof.evaluate(
        (network, tokenizer), TEXTS, ["saliency", "feature_ablation"], ["agreement"]
    )
    assert (run.table().status == "ok").any()


def test_audio_is_a_series_normalised_as_its_feature_extractor_does() -> None:
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2,
        conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=8,
    )  # fmt: skip
    network = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
    waves = np.random.default_rng(0).normal(0.1, 0.2, (3, 400)).astype(np.float32)
    with torch.no_grad():
        inputs = extractor(list(waves), sampling_rate=16000, return_tensors="pt")
        expected = network(inputs.input_values).logits
    model = load_model((network, extractor))
    batch = open_data(torch.from_numpy(waves)[:, None]).load(range(3)).batch
    torch.testing.assert_close(model.logits(model.inputs(batch)), expected, rtol=1e-4, atol=1e-4)
    maps = heatproof.explain((network, extractor), torch.from_numpy(waves)[:, None], "saliency")
    assert maps.shape == (3, 1, 400)
