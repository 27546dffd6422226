"""What users of transformers and datasets do first: objects and texts as they are, without a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways

GOOD = ["a great film", "what a lovely lovely film", "great actors and great fun", "lovely"]
BAD = ["a dull film", "what a boring boring film", "dull actors and no fun", "boring"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A fast tokenizer with a vocabulary of the words above."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted({word for text in GOOD + BAD for word in text.split()})
    vocabulary = {
        word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    }
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokens.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


@pytest.fixture(scope="module")
def classifier(tokenizer: Any) -> Any:
    """A small DistilBERT that tells good reviews from bad ones."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=2,
        id2label={0: "NEGATIVE", 1: "POSITIVE"},
        label2id={"NEGATIVE": 0, "POSITIVE": 1},
    )
    model = transformers.DistilBertForSequenceClassification(config)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    inputs = tokenizer(GOOD + BAD, padding=True, return_tensors="pt")
    labels = torch.tensor([1] * len(GOOD) + [0] * len(BAD))
    for _ in range(60):
        optimiser.zero_grad()
        model(**inputs, labels=labels).loss.backward()
        optimiser.step()
    return model.eval()


def test_a_model_with_its_tokenizer_reads_a_list_of_texts(classifier: Any, tokenizer: Any) -> None:
    run = heatproof.evaluate(
        (classifier, tokenizer),
        GOOD + BAD,
        ["integrated_gradients", "lime", "random"],
        ["faithfulness"],
    )
    assert run.samples().predicted_name.tolist() == ["POSITIVE"] * 4 + ["NEGATIVE"] * 4


def test_the_output_of_a_tokenizer_is_data(classifier: Any, tokenizer: Any) -> None:
    encoded = tokenizer(GOOD + BAD, padding=True, return_tensors="pt")
    run = heatproof.evaluate(
        classifier, encoded, ["integrated_gradients", "input_x_gradient"], ["agreement"]
    )
    assert run.samples().predicted.tolist() == [1] * 4 + [0] * 4


def test_a_pipeline_of_text_classification(classifier: Any, tokenizer: Any) -> None:
    transformers = pytest.importorskip("transformers")
    pipe = transformers.pipeline("text-classification", model=classifier, tokenizer=tokenizer)
    run = heatproof.evaluate(pipe, GOOD + BAD, ["integrated_gradients", "lime"], ["faithfulness"])
    labels = [answer["label"] for answer in pipe(GOOD + BAD)]
    assert run.samples().predicted_name.tolist() == labels


def test_a_dataset_of_texts_with_labels(classifier: Any, tokenizer: Any) -> None:
    datasets = pytest.importorskip("datasets")
    reviews = datasets.Dataset.from_dict({"text": GOOD + BAD, "label": [1] * 4 + [0] * 4})
    run = heatproof.evaluate(
        (classifier, tokenizer), reviews, ["integrated_gradients", "random"], ["faithfulness"]
    )
    assert (run.samples().label == run.samples().predicted).all()


def test_a_tokenised_dataset(classifier: Any, tokenizer: Any) -> None:
    datasets = pytest.importorskip("datasets")
    reviews = datasets.Dataset.from_dict({"text": GOOD + BAD, "label": [1] * 4 + [0] * 4})
    tokenised = reviews.map(lambda rows: tokenizer(rows["text"]), batched=True).remove_columns(
        "text"
    )
    run = heatproof.evaluate(
        (classifier, tokenizer), tokenised, ["integrated_gradients", "lime"], ["agreement"]
    )
    assert (run.samples().label == run.samples().predicted).all()


def test_integrated_gradients_of_embeddings_equal_captum(classifier: Any, tokenizer: Any) -> None:
    captum = pytest.importorskip("captum.attr")
    encoded = tokenizer(GOOD, padding=True, return_tensors="pt")

    def positive(vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return classifier(inputs_embeds=vectors, attention_mask=mask).logits

    vectors = classifier.get_input_embeddings()(encoded["input_ids"]).detach()
    expected = captum.IntegratedGradients(positive).attribute(
        vectors, additional_forward_args=(encoded["attention_mask"],), target=1, n_steps=50
    )

    maps = heatproof.explain((classifier, tokenizer), GOOD, heatproof.IntegratedGradients(steps=50))
    real = encoded["attention_mask"].bool()
    ours, theirs = torch.from_numpy(maps)[real], expected.sum(2)[real]
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.99


def test_lime_hides_words_and_leaves_special_tokens(classifier: Any, tokenizer: Any) -> None:
    maps = heatproof.explain((classifier, tokenizer), GOOD, "lime")
    ids = tokenizer(GOOD, padding=True, return_tensors="np")["input_ids"]
    assert (maps[np.isin(ids, tokenizer.all_special_ids)] == 0).all()
    lovely = maps[3][ids[3] == tokenizer.convert_tokens_to_ids("lovely")]
    assert lovely > 0


@pytest.fixture(scope="module")
def vit() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        id2label={0: "cat", 1: "dog", 2: "owl"},
        label2id={"cat": 0, "dog": 1, "owl": 2},
    )
    model = transformers.ViTForImageClassification(config).eval()
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    return model, processor


def photographs(n: int, side: int = 48) -> list[Any]:
    from PIL import Image

    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 255, (side, side, 3), np.uint8)) for _ in range(n)]


def test_an_image_classifier_with_its_processor_reads_pil_images(vit: tuple[Any, Any]) -> None:
    model, processor = vit
    images = photographs(6)
    run = heatproof.evaluate((model, processor), images, ["saliency", "random"], ["faithfulness"])
    with torch.no_grad():
        expected = model(**processor(images, return_tensors="pt")).logits.argmax(1)
    assert run.samples().predicted.tolist() == expected.tolist()


def test_a_dataset_of_images(vit: tuple[Any, Any]) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"image": photographs(6), "label": [0, 1, 2, 0, 1, 2]}
    names = datasets.ClassLabel(names=["cat", "dog", "owl"])
    features = datasets.Features({"image": datasets.Image(), "label": names})
    animals = datasets.Dataset.from_dict(columns, features=features)
    run = heatproof.evaluate(vit, animals, ["saliency", "attention_rollout"], ["faithfulness"])
    assert run.samples().label.tolist() == columns["label"]


def test_a_pipeline_of_image_classification(vit: tuple[Any, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    model, processor = vit
    pipe = transformers.pipeline("image-classification", model=model, image_processor=processor)
    images = photographs(3)
    run = heatproof.evaluate(pipe, images, ["saliency", "random"], ["faithfulness"])
    best = [max(answers, key=lambda answer: answer["score"])["label"] for answers in pipe(images)]
    assert run.samples().predicted_name.tolist() == best


def test_the_output_of_an_image_processor_is_data(vit: tuple[Any, Any]) -> None:
    model, processor = vit
    inputs = processor(photographs(4), return_tensors="pt")
    run = heatproof.evaluate((model, processor), inputs, ["saliency", "random"], ["faithfulness"])
    with torch.no_grad():
        assert run.samples().predicted.tolist() == model(**inputs).logits.argmax(1).tolist()


@pytest.fixture(scope="module")
def wav2vec() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        num_labels=3,
    )
    model = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    return model, transformers.Wav2Vec2FeatureExtractor()


def test_an_audio_classifier_reads_a_list_of_waves(wav2vec: tuple[Any, Any]) -> None:
    model, extractor = wav2vec
    rng = np.random.default_rng(0)
    waves = [rng.standard_normal(800).astype(np.float32) for _ in range(4)]
    run = heatproof.evaluate((model, extractor), waves, ["saliency", "random"], ["faithfulness"])
    with torch.no_grad():
        inputs = extractor(waves, sampling_rate=16000, return_tensors="pt")
        expected = model(**inputs).logits.argmax(1)
    assert run.samples().predicted.tolist() == expected.tolist()


def test_a_dataset_of_audio(wav2vec: tuple[Any, Any]) -> None:
    datasets = pytest.importorskip("datasets")
    model, extractor = wav2vec
    rng = np.random.default_rng(0)
    waves = [rng.standard_normal(800).astype(np.float32) for _ in range(4)]
    rows = datasets.Dataset.from_dict({"speech": waves})
    values = rows.map(
        lambda row: {
            "input_values": extractor(row["speech"], sampling_rate=16000)["input_values"][0]
        }
    ).remove_columns("speech")
    run = heatproof.evaluate((model, extractor), values, ["saliency", "random"], ["faithfulness"])
    assert len(run.samples()) == 4
    (models,) = run.manifest.study.tasks.values()
    assert models[type(model).__name__].modality == "series"


def test_a_language_model_explains_its_next_token(tokenizer: Any) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    run = heatproof.evaluate(
        (model, tokenizer), GOOD, ["input_x_gradient", "random"], ["faithfulness"]
    )
    assert len(run.samples()) == len(GOOD)
    assert run.samples().error.eq("").all()
