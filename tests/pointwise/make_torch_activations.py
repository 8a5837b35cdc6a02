# SPDX-License-Identifier: Apache-2.0
"""Writes torch_activations.inc: values and gradients of PyTorch's activations in float64.

Run with a Python that has torch:  python make_torch_activations.py > torch_activations.inc
"""
import torch
import torch.nn.functional as F

# The kinks of all of them (-3, -1, 0, 1, 3, 6 and 0.5) and what lies around and far from them.
POINTS = [-100.0, -30.0, -6.0, -4.0, -3.0, -2.5, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 0.75, 1.0, 2.5, 3.0, 4.0, 6.0,
          30.0, 100.0]
POSITIVE = [x for x in POINTS if x > 0]
NOT_ZERO = [x for x in POINTS if x != 0]

# ONNX name, alpha, beta, function, points
CASES = [
    ("Relu", 0, 0, F.relu, POINTS),
    ("LeakyRelu", 0.01, 0, F.leaky_relu, POINTS),
    ("LeakyRelu", 0.2, 0, lambda x: F.leaky_relu(x, 0.2), POINTS),
    ("ThresholdedRelu", 1, 0, lambda x: F.threshold(x, 1, 0), POINTS),
    ("Elu", 1, 0, F.elu, POINTS),
    ("Elu", 0.5, 0, lambda x: F.elu(x, 0.5), POINTS),
    ("Celu", 1, 0, F.celu, POINTS),
    ("Celu", 2, 0, lambda x: F.celu(x, 2), POINTS),
    ("Selu", 1.67326319217681884765625, 1.05070102214813232421875, F.selu, POINTS),
    ("Sigmoid", 0, 0, torch.sigmoid, POINTS),
    ("HardSigmoid", 1 / 6, 0.5, F.hardsigmoid, POINTS),
    ("HardSwish", 0, 0, F.hardswish, POINTS),
    ("Swish", 1, 0, F.silu, POINTS),
    ("Tanh", 0, 0, torch.tanh, POINTS),
    ("Softplus", 0, 0, lambda x: F.softplus(x, threshold=1000), POINTS),
    ("Softsign", 0, 0, F.softsign, POINTS),
    ("Mish", 0, 0, F.mish, POINTS),
    ("Gelu", 0, 0, F.gelu, POINTS),
    ("GeluTanh", 0, 0, lambda x: F.gelu(x, approximate="tanh"), POINTS),
    ("Exp", 0, 0, torch.exp, POINTS),
    ("Log", 0, 0, torch.log, POSITIVE),
    ("Sqrt", 0, 0, torch.sqrt, POSITIVE),
    ("Reciprocal", 0, 0, torch.reciprocal, NOT_ZERO),
    ("Neg", 0, 0, torch.neg, POINTS),
    ("Abs", 0, 0, torch.abs, POINTS),
    ("Erf", 0, 0, torch.erf, POINTS),
    # What Clip is exported for; not in activations.def, see clip() and prelu().
    ("Clip", 0, 6, F.relu6, POINTS),
    ("Clip", -1, 1, F.hardtanh, POINTS),
    ("PRelu", 0.25, 0, lambda x: F.prelu(x, torch.tensor([0.25], dtype=torch.float64)), POINTS),
]


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by make_torch_activations.py with torch {torch.__version__.split('+')[0]}.")
    print("// REN_POINT(name, alpha, beta, x, y, dy/dx)")
    for name, alpha, beta, function, points in CASES:
        for value in points:
            x = torch.tensor([value], dtype=torch.float64, requires_grad=True)
            y = function(x)
            y.backward()
            print(f"REN_POINT({name}, {alpha!r}, {beta!r}, {value!r}, {y.item()!r}, {x.grad.item()!r})")


main()
