"""Attribution methods, by the name that a study file uses."""

from typing import Any

from heatproof.explainers.ablation import FeatureAblation, FeaturePermutation
from heatproof.explainers.adapters.maps import Precomputed
from heatproof.explainers.attention import AttentionRollout, Chefer
from heatproof.explainers.cam import (
    GradCAM,
    GradCAMPlusPlus,
    GuidedGradCAM,
    HiResCAM,
    LayerCAM,
)
from heatproof.explainers.concepts.explain import Car, Cav
from heatproof.explainers.controls import RandomMap, SobelEdges, WeightNoise
from heatproof.explainers.examples.influence import Influence, TracIn
from heatproof.explainers.examples.simplex import RepresentationSimilarity, SimplEx
from heatproof.explainers.gradient import (
    ExpectedGradients,
    GradientShap,
    InputXGradient,
    IntegratedGradients,
    Saliency,
)
from heatproof.explainers.lrp import AttnLrp, Lrp
from heatproof.explainers.masking import Occlusion, Rise
from heatproof.explainers.mfaba import Mfaba
from heatproof.explainers.rules import Deconvolution, DeepLift, GuidedBackprop
from heatproof.explainers.sampling import KernelShap, Lime
from heatproof.explainers.smoothgrad import SmoothGrad, SmoothGradSquared, VarGrad

KINDS: tuple[Any, ...] = (
    Saliency,
    InputXGradient,
    IntegratedGradients,
    ExpectedGradients,
    GradientShap,
    DeepLift,
    GuidedBackprop,
    Deconvolution,
    Lrp,
    AttnLrp,
    GradCAM,
    GradCAMPlusPlus,
    LayerCAM,
    HiResCAM,
    GuidedGradCAM,
    AttentionRollout,
    Chefer,
    Lime,
    KernelShap,
    Occlusion,
    Rise,
    FeatureAblation,
    FeaturePermutation,
    Mfaba,
    SmoothGrad,
    SmoothGradSquared,
    VarGrad,
    RandomMap,
    SobelEdges,
    Influence,
    TracIn,
    SimplEx,
    RepresentationSimilarity,
    Cav,
    Car,
    Precomputed,
    WeightNoise,
)
EXPLAINERS: dict[str, Any] = {kind.name: kind for kind in KINDS}

__all__ = [
    "EXPLAINERS",
    "AttentionRollout",
    "AttnLrp",
    "Car",
    "Cav",
    "Chefer",
    "Deconvolution",
    "DeepLift",
    "ExpectedGradients",
    "FeatureAblation",
    "FeaturePermutation",
    "GradCAM",
    "GradCAMPlusPlus",
    "GradientShap",
    "GuidedBackprop",
    "GuidedGradCAM",
    "HiResCAM",
    "Influence",
    "InputXGradient",
    "IntegratedGradients",
    "KernelShap",
    "LayerCAM",
    "Lime",
    "Lrp",
    "Mfaba",
    "Occlusion",
    "Precomputed",
    "RandomMap",
    "RepresentationSimilarity",
    "Rise",
    "Saliency",
    "SimplEx",
    "SmoothGrad",
    "SmoothGradSquared",
    "SobelEdges",
    "TracIn",
    "VarGrad",
    "WeightNoise",
]
