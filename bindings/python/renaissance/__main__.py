# SPDX-License-Identifier: Apache-2.0
"""python -m renaissance export|golden: see --help of each."""
import argparse
import importlib
import sys


def add_source(parser, required):
    source = parser.add_mutually_exclusive_group(required=required)
    source.add_argument('--torchvision', metavar='NAME', help='a model of torchvision, e.g. resnet50')
    source.add_argument('--module', metavar='PACKAGE.MODULE:CALLABLE', help='what to call for your own module')
    parser.add_argument('--classes', type=int, help='num_classes of the torchvision model (default: 1000)')
    parser.add_argument('--weights', help="torchvision's pretrained weights, e.g. DEFAULT (default: random)")
    parser.add_argument('--no-dropout', action='store_true',
                        help='set the probability of Dropout and stochastic depth to 0')
    parser.add_argument('--seed', type=int, default=0, help='seed of random weights and batches')


def build_module(args):
    import torch
    torch.manual_seed(args.seed)
    if args.torchvision:
        import torchvision
        options = {} if args.classes is None else {'num_classes': args.classes}
        if args.torchvision in ('googlenet', 'inception_v3'):
            options.update(aux_logits=False, init_weights=True)
        try:
            module = torchvision.models.get_model(args.torchvision, weights=args.weights, **options)
        except ValueError as problem:
            sys.exit(f'error: {problem}')
    else:
        if ':' not in args.module:
            sys.exit('error: --module takes PACKAGE.MODULE:CALLABLE, e.g. mynets.small:Net')
        package, name = args.module.split(':', 1)
        sys.path.insert(0, '')
        module = getattr(importlib.import_module(package), name)()
    if args.no_dropout:
        for m in module.modules():
            if isinstance(m, torch.nn.modules.dropout._DropoutNd) or type(m).__name__ == 'StochasticDepth':
                m.p = 0.0
    return module.float()


def run_export(args):
    import torch

    from .exporter import export
    module = build_module(args)
    example = torch.randn(args.batch or 2, args.channels, args.size, args.size)
    print(export(module, example, args.out, dynamic_batch=args.batch is None, opset=args.opset,
                 input_names=['image']))


def run_golden(args):
    from .exporter import load_initializers
    from .recorder import record_golden
    module = None
    if args.torchvision or args.module:
        module = build_module(args)
        load_initializers(module, args.model)
    outputs = dict(o.rsplit(':', 1) for o in args.outputs.split(',')) if args.outputs else None
    report = record_golden(args.model, args.out, module, batch=args.batch, loss=args.loss,
                           outputs=outputs and {n: float(w) for n, w in outputs.items()},
                           label_smoothing=args.label_smoothing, lr=args.lr, momentum=args.momentum,
                           weight_decay=args.weight_decay, nesterov=args.nesterov, seed=args.seed,
                           trainable=args.trainable.split(',') if args.trainable else None)
    print(str(report).splitlines()[-1])


def main(argv=None):
    parser = argparse.ArgumentParser(prog='python -m renaissance', description='Files for Renaissance, from PyTorch.')
    commands = parser.add_subparsers(dest='command', required=True)

    exporter = commands.add_parser('export', help='write a module as an ONNX file to be trained')
    add_source(exporter, required=True)
    exporter.add_argument('--size', type=int, default=224, help='height and width of the image (default: 224)')
    exporter.add_argument('--channels', type=int, default=3)
    exporter.add_argument('--batch', type=int, help='fix the batch size (default: any)')
    exporter.add_argument('--opset', type=int, default=17)
    exporter.add_argument('--out', required=True, metavar='MODEL.onnx')
    exporter.set_defaults(run=run_export)

    golden = commands.add_parser('golden', help="record PyTorch's numbers for `renaissance verify`",
                                 description="Record PyTorch's numbers for a model, as `renaissance verify` reads "
                                 'them. With --torchvision or --module the module gets the weights of the file and '
                                 'is run; without, the file itself is interpreted.')
    golden.add_argument('model', metavar='MODEL.onnx')
    add_source(golden, required=False)
    golden.add_argument('--out', required=True, metavar='GOLDEN.safetensors')
    golden.add_argument('--batch', type=int, default=4)
    golden.add_argument('--loss', choices=['cross_entropy', 'pixel_cross_entropy'], default='cross_entropy')
    golden.add_argument('--outputs', help='outputs in the loss with weights, e.g. logits:1.0,aux:0.3')
    golden.add_argument('--label-smoothing', type=float, default=0.0)
    golden.add_argument('--lr', type=float, default=0.05)
    golden.add_argument('--momentum', type=float, default=0.9)
    golden.add_argument('--weight-decay', type=float, default=5e-4)
    golden.add_argument('--nesterov', action='store_true')
    golden.add_argument('--trainable', help='names of the parameters, comma-separated (default: what the file says)')
    golden.set_defaults(run=run_golden)

    args = parser.parse_args(argv)
    try:
        args.run(args)
    except (ValueError, OSError) as problem:
        sys.exit(f'error: {problem}')


if __name__ == '__main__':
    main()
