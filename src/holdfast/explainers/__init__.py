"""Attribution methods, by the name that a study file uses."""

from holdfast.explainers.ablation import FeatureAblation, FeaturePermutation
from holdfast.explainers.adapters.maps import Precomputed
from holdfast.explainers.cam import GradCAM
from holdfast.explainers.concepts.explain import Car, Cav
from holdfast.explainers.controls import RandomMap, SobelEdges
from holdfast.explainers.examples.influence import Influence
from holdfast.explainers.examples.simplex import RepresentationSimilarity, SimplEx
from holdfast.explainers.examples.tracin import TracIn
from holdfast.explainers.gradient import GradientShap, InputXGradient, IntegratedGradients, Saliency
from holdfast.explainers.masking import Occlusion, Rise
from holdfast.explainers.mfaba import Mfaba
from holdfast.explainers.rules import DeepLift, GuidedBackprop
from holdfast.explainers.sampling import KernelShap, Lime
from holdfast.explainers.smoothgrad import SmoothGrad, SmoothGradSquared, VarGrad

EXPLAINERS = {
    "saliency": Saliency,
    "input_x_gradient": InputXGradient,
    "integrated_gradients": IntegratedGradients,
    "gradient_shap": GradientShap,
    "deep_lift": DeepLift,
    "guided_backprop": GuidedBackprop,
    "grad_cam": GradCAM,
    "lime": Lime,
    "kernel_shap": KernelShap,
    "occlusion": Occlusion,
    "rise": Rise,
    "feature_ablation": FeatureAblation,
    "feature_permutation": FeaturePermutation,
    "mfaba": Mfaba,
    "smoothgrad": SmoothGrad,
    "smoothgrad_squared": SmoothGradSquared,
    "vargrad": VarGrad,
    "random": RandomMap,
    "sobel": SobelEdges,
    "influence": Influence,
    "tracin": TracIn,
    "simplex": SimplEx,
    "representation_similarity": RepresentationSimilarity,
    "cav": Cav,
    "car": Car,
    "precomputed": Precomputed,
}

__all__ = [
    "EXPLAINERS",
    "Car",
    "Cav",
    "DeepLift",
    "FeatureAblation",
    "FeaturePermutation",
    "GradCAM",
    "GradientShap",
    "GuidedBackprop",
    "Influence",
    "InputXGradient",
    "IntegratedGradients",
    "KernelShap",
    "Lime",
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
]
