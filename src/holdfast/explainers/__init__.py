"""Attribution methods, by the name that a study file uses."""

from typing import Any

from holdfast.explainers.ablation import FeatureAblation, FeaturePermutation
from holdfast.explainers.adapters.maps import Precomputed
from holdfast.explainers.attention import AttentionRollout, Chefer
from holdfast.explainers.cam import GradCAM, GradCAMPlusPlus, HiResCAM, LayerCAM
from holdfast.explainers.concepts.explain import Car, Cav
from holdfast.explainers.controls import RandomMap, SobelEdges, WeightNoise
from holdfast.explainers.examples.influence import Influence, TracIn
from holdfast.explainers.examples.simplex import RepresentationSimilarity, SimplEx
from holdfast.explainers.gradient import ExpectedGradients, GradientShap, InputXGradient, IntegratedGradients, Saliency
from holdfast.explainers.lrp import Lrp
from holdfast.explainers.masking import Occlusion, Rise
from holdfast.explainers.mfaba import Mfaba
from holdfast.explainers.rules import DeepLift, GuidedBackprop
from holdfast.explainers.sampling import KernelShap, Lime
from holdfast.explainers.smoothgrad import SmoothGrad, SmoothGradSquared, VarGrad

KINDS: tuple[Any, ...] = (Saliency, InputXGradient, IntegratedGradients, ExpectedGradients, GradientShap, DeepLift)
KINDS += (GuidedBackprop, Lrp, GradCAM, GradCAMPlusPlus, LayerCAM, HiResCAM, AttentionRollout, Chefer, Lime)
KINDS += (KernelShap, Occlusion, Rise, FeatureAblation, FeaturePermutation, Mfaba, SmoothGrad, SmoothGradSquared)
KINDS += (VarGrad, RandomMap, SobelEdges, Influence, TracIn, SimplEx, RepresentationSimilarity, Cav, Car, Precomputed)
KINDS += (WeightNoise,)
EXPLAINERS: dict[str, Any] = {kind.name: kind for kind in KINDS}

__all__ = ["EXPLAINERS", "AttentionRollout", "Car", "Cav", "Chefer", "DeepLift", "ExpectedGradients"]
__all__ += ["FeatureAblation", "FeaturePermutation", "GradCAM", "GradCAMPlusPlus", "GradientShap", "GuidedBackprop"]
__all__ += ["HiResCAM", "Influence", "InputXGradient", "IntegratedGradients", "KernelShap", "LayerCAM", "Lime", "Lrp"]
__all__ += ["Mfaba", "Occlusion", "Precomputed", "RandomMap", "RepresentationSimilarity", "Rise", "Saliency"]
__all__ += ["SimplEx", "SmoothGrad", "SmoothGradSquared", "SobelEdges", "TracIn", "VarGrad", "WeightNoise"]
