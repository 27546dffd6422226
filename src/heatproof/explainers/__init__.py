"""Attribution methods, by the name that a study file uses.

A class is imported when it is first used, by its name in `EXPLAINERS` or as an attribute such as
`heatproof.explainers.Lime`.
"""

from typing import TYPE_CHECKING, Any

from heatproof.lazy import LazyRegistry

if TYPE_CHECKING:
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

ALIASES = {
    "ablation": "feature_ablation",
    "cam": "grad_cam",
    "deepshap": "deep_lift",
    "edges": "sobel",
    "eg": "expected_gradients",
    "gbp": "guided_backprop",
    "gradcam": "grad_cam",
    "gradcampp": "grad_cam_plus_plus",
    "gradcamplusplus": "grad_cam_plus_plus",
    "gradient": "saliency",
    "gradients": "saliency",
    "gradientxinput": "input_x_gradient",
    "gradshap": "gradient_shap",
    "gradxinput": "input_x_gradient",
    "ig": "integrated_gradients",
    "intgrad": "integrated_gradients",
    "inputxgrad": "input_x_gradient",
    "layerwiserelevancepropagation": "lrp",
    "permutation": "feature_permutation",
    "rollout": "attention_rollout",
    "shap": "kernel_shap",
    "shapley": "kernel_shap",
    "shapleyvalues": "kernel_shap",
    "sg": "smoothgrad",
    "tcav": "cav",
    "vanillagradient": "saliency",
    "vanillagradients": "saliency",
}
"""What papers and other libraries call an explainer -> its name here; `lazy.fold` says how they are written."""
EXPLAINERS = LazyRegistry(
    {
        "saliency": "heatproof.explainers.gradient:Saliency",
        "input_x_gradient": "heatproof.explainers.gradient:InputXGradient",
        "integrated_gradients": "heatproof.explainers.gradient:IntegratedGradients",
        "expected_gradients": "heatproof.explainers.gradient:ExpectedGradients",
        "gradient_shap": "heatproof.explainers.gradient:GradientShap",
        "deep_lift": "heatproof.explainers.rules:DeepLift",
        "guided_backprop": "heatproof.explainers.rules:GuidedBackprop",
        "deconvolution": "heatproof.explainers.rules:Deconvolution",
        "lrp": "heatproof.explainers.lrp:Lrp",
        "attn_lrp": "heatproof.explainers.lrp:AttnLrp",
        "grad_cam": "heatproof.explainers.cam:GradCAM",
        "grad_cam_plus_plus": "heatproof.explainers.cam:GradCAMPlusPlus",
        "layer_cam": "heatproof.explainers.cam:LayerCAM",
        "hires_cam": "heatproof.explainers.cam:HiResCAM",
        "guided_grad_cam": "heatproof.explainers.cam:GuidedGradCAM",
        "attention_rollout": "heatproof.explainers.attention:AttentionRollout",
        "chefer": "heatproof.explainers.attention:Chefer",
        "lime": "heatproof.explainers.sampling:Lime",
        "kernel_shap": "heatproof.explainers.sampling:KernelShap",
        "occlusion": "heatproof.explainers.masking:Occlusion",
        "rise": "heatproof.explainers.masking:Rise",
        "feature_ablation": "heatproof.explainers.ablation:FeatureAblation",
        "feature_permutation": "heatproof.explainers.ablation:FeaturePermutation",
        "mfaba": "heatproof.explainers.mfaba:Mfaba",
        "smoothgrad": "heatproof.explainers.smoothgrad:SmoothGrad",
        "smoothgrad_squared": "heatproof.explainers.smoothgrad:SmoothGradSquared",
        "vargrad": "heatproof.explainers.smoothgrad:VarGrad",
        "random": "heatproof.explainers.controls:RandomMap",
        "sobel": "heatproof.explainers.controls:SobelEdges",
        "influence": "heatproof.explainers.examples.influence:Influence",
        "tracin": "heatproof.explainers.examples.influence:TracIn",
        "simplex": "heatproof.explainers.examples.simplex:SimplEx",
        "representation_similarity": "heatproof.explainers.examples.simplex:RepresentationSimilarity",
        "cav": "heatproof.explainers.concepts.explain:Cav",
        "car": "heatproof.explainers.concepts.explain:Car",
        "precomputed": "heatproof.explainers.adapters.maps:Precomputed",
        "weight_noise": "heatproof.explainers.controls:WeightNoise",
    },
    ALIASES,
)
"""Every explainer by its name in a study file, in the order in which `heatproof ls` lists them."""

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


def __getattr__(name: str) -> Any:
    """Import the class of an explainer."""
    return EXPLAINERS.by_class_name(__name__, name)
