#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/mix/torchvision.safetensors: a batch as torchvision.transforms.v2's MixUp and CutMix mix
it, with PyTorch's losses and gradients for it.

Needs torch, torchvision and safetensors. lambda and the middle of CutMix's box are given, not drawn. Pictures are
NHWC; what a network makes of them is computed in double. Of each case c:
  c/lambda, c/middle [x, y]     given; middle only for CutMix
  c/box [top, left, bottom, right], c/own    what torchvision makes of them; own: the share of a sample's own label
  c/images                      normalised, then mixed (F32)
  c/loss, c/dlogits             cross entropy of `logits` with the mixed targets, with label smoothing 0.1 where
  c/smooth_loss, c/smooth_dlogits   the name says so
  c/net_loss, c/grad/PARAMETER  of a small network on c/images, smoothed
Run again only when cases change.
"""
import pathlib
from unittest import mock

import torch
from safetensors.torch import save_file
from torch.nn.functional import conv2d, cross_entropy, linear
from torchvision.transforms import v2

OUT = pathlib.Path(__file__).resolve().parent.parent / 'fixtures' / 'mix' / 'torchvision.safetensors'
N, H, W, C, CLASSES = 5, 6, 8, 3, 4
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# name: lambda, and for CutMix the middle of the box
CASES = {'mixup_most_own': (0.8125, None), 'mixup_most_other': (0.3, None), 'mixup_other_alone': (0.0, None),
         'mixup_own_alone': (1.0, None), 'cutmix_inside': (0.75, (4, 3)), 'cutmix_top_left': (0.4, (0, 0)),
         'cutmix_bottom_right': (0.2, (7, 5)), 'cutmix_left': (0.05, (1, 4)), 'cutmix_nothing': (0.99, (3, 3)),
         'cutmix_everything': (0.0, (4, 3))}


def transform(lam, middle):
    mix = (v2.MixUp if middle is None else v2.CutMix)(num_classes=CLASSES)
    mix._dist = mock.Mock(sample=lambda _: torch.tensor([lam], dtype=torch.float64))
    return mix


def drawn(middle):
    """torch.randint gives x, then y."""
    return mock.patch('torch.randint', side_effect=[torch.tensor([v]) for v in middle or ()])


def nhwc(x):
    return x.permute(0, 2, 3, 1).contiguous()


def net(x, p):
    x = torch.relu(conv2d(x, p['conv.weight'].permute(0, 3, 1, 2), p['conv.bias'], padding=1)).mean((2, 3))
    return linear(x, p['fc.weight'][:, 0, 0, :], p['fc.bias'].flatten())


def main():
    torch.manual_seed(1)
    pictures = torch.randint(256, (N, C, H, W), dtype=torch.uint8)
    labels = torch.tensor([2, 0, 3, 3, 1])
    logits = 3 * torch.randn(N, CLASSES)
    parameters = {'conv.weight': 0.4 * torch.randn(6, 3, 3, C), 'conv.bias': 0.1 * torch.randn(6),
                  'fc.weight': torch.randn(CLASSES, 1, 1, 6), 'fc.bias': 0.1 * torch.randn(CLASSES)}
    out = {'pictures': nhwc(pictures), 'labels': labels.int(), 'logits': logits, **parameters}
    x = v2.Normalize(MEAN, STD)(pictures.float() / 255)
    for name, (lam, middle) in CASES.items():
        mix = transform(lam, middle)
        with drawn(middle):
            images, targets = mix(x, labels)
        with drawn(middle):
            made = mix.make_params([x])
        x1, y1, x2, y2 = made.get('box', (0, 0, W, H))
        out[f'{name}/lambda'] = torch.tensor([lam], dtype=torch.float64)
        if middle is not None:
            out[f'{name}/middle'] = torch.tensor(middle, dtype=torch.int32)
        out[f'{name}/box'] = torch.tensor([y1, x1, y2, x2], dtype=torch.int32)
        out[f'{name}/own'] = torch.tensor([made.get('lam_adjusted', lam)], dtype=torch.float64)
        out[f'{name}/images'] = nhwc(images)
        for prefix, smoothing in (('', 0.0), ('smooth_', 0.1)):
            z = logits.double().requires_grad_()
            loss = cross_entropy(z, targets.double(), label_smoothing=smoothing)
            loss.backward()
            out[f'{name}/{prefix}loss'], out[f'{name}/{prefix}dlogits'] = loss.detach().reshape(1), z.grad
        p = {key: value.double().requires_grad_() for key, value in parameters.items()}
        loss = cross_entropy(net(images.double(), p), targets.double(), label_smoothing=0.1)
        loss.backward()
        out[f'{name}/net_loss'] = loss.detach().reshape(1)
        out.update({f'{name}/grad/{key}': value.grad for key, value in p.items()})
    save_file(out, OUT)


if __name__ == '__main__':
    main()
