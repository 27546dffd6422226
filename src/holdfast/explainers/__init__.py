"""Attribution methods, by the name that a study file uses."""

from typing import Any

from holdfast.explainers.ablation import FeatureAblation, FeaturePermutation
from holdfast.explainers.adapters.maps import Precomputed
from holdfast.explainers.cam import GradCAM
from holdfast.explainers.concepts.explain import Car, Cav
from holdfast.explainers.controls import RandomMap, SobelEdges, WeightNoise
from holdfast.explainers.examples.influence import Influence, TracIn
from holdfast.explainers.examples.simplex import RepresentationSimilarity, SimplEx
from holdfast.explainers.gradient import GradientShap, InputXGradient, IntegratedGradients, Saliency
from holdfast.explainers.lrp import Lrp
from holdfast.explainers.masking import Occlusion, Rise
from holdfast.explainers.mfaba import Mfaba
from holdfast.explainers.rules import DeepLift, GuidedBackprop
from holdfast.explainers.sampling import KernelShap, Lime
from holdfast.explainers.smoothgrad import SmoothGrad, SmoothGradSquared, VarGrad

KINDS: tuple[Any, ...] = (Saliency, InputXGradient, IntegratedGradients, GradientShap, DeepLift, GuidedBackprop, Lrp)
KINDS += (GradCAM, Lime, KernelShap, Occlusion, Rise, FeatureAblation, FeaturePermutation, Mfaba, SmoothGrad)
KINDS += (SmoothGradSquared, VarGrad, RandomMap, SobelEdges, Influence, TracIn, SimplEx, RepresentationSimilarity)
KINDS += (Cav, Car, Precomputed, WeightNoise)
EXPLAINERS: dict[str, Any] = {kind.name: kind for kind in KINDS}

__all__ = ["EXPLAINERS", "Car", "Cav", "DeepLift", "FeatureAblation", "FeaturePermutation", "GradCAM", "GradientShap"]
__all__ += ["GuidedBackprop", "Influence", "InputXGradient", "IntegratedGradients", "KernelShap", "Lime", "Lrp"]
__all__ += ["Mfaba", "Occlusion", "Precomputed", "RandomMap", "RepresentationSimilarity", "Rise", "Saliency"]
__all__ += ["SimplEx", "SmoothGrad", "SmoothGradSquared", "SobelEdges", "TracIn", "VarGrad", "WeightNoise"]
