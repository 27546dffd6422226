"""Attribution methods, by the name that a study file uses."""

from holdfast.explainers.cam import GradCAM
from holdfast.explainers.controls import RandomMap, SobelEdges
from holdfast.explainers.gradient import GradientShap, InputXGradient, IntegratedGradients, Saliency
from holdfast.explainers.masking import Occlusion, Rise
from holdfast.explainers.mfaba import Mfaba
from holdfast.explainers.rules import DeepLift, GuidedBackprop
from holdfast.explainers.sampling import KernelShap, Lime
from holdfast.explainers.smoothing import SmoothGrad, SmoothGradSquared, VarGrad

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
    "mfaba": Mfaba,
    "smoothgrad": SmoothGrad,
    "smoothgrad_squared": SmoothGradSquared,
    "vargrad": VarGrad,
    "random": RandomMap,
    "sobel": SobelEdges,
}

__all__ = [
    "EXPLAINERS",
    "DeepLift",
    "GradCAM",
    "GradientShap",
    "GuidedBackprop",
    "InputXGradient",
    "IntegratedGradients",
    "KernelShap",
    "Lime",
    "Mfaba",
    "Occlusion",
    "RandomMap",
    "Rise",
    "Saliency",
    "SmoothGrad",
    "SmoothGradSquared",
    "SobelEdges",
    "VarGrad",
]
