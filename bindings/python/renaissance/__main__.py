# SPDX-License-Identifier: Apache-2.0
"""python -m renaissance export|golden|autocast: see --help of each."""
import argparse
import importlib
import importlib.util
import math
import os
import sys
import traceback

EXPORT_EXAMPLES = """examples:
  python -m renaissance export --torchvision resnet18 --classes 10 --out model.onnx
  python -m renaissance export --torchvision resnet18 --weights DEFAULT --out pretrained.onnx
  python -m renaissance export --module mynets.small:Net --size 64 --channels 1 --out small.onnx
"""
GOLDEN_EXAMPLES = """examples:
  python -m renaissance export --torchvision resnet18 --classes 10 --size 64 --out model.onnx
  python -m renaissance golden model.onnx --lr 1e-4 --out model.golden.safetensors
  python -m renaissance golden small.onnx --module mynets.small:Net --out small.golden.safetensors

then, where the engine is:  renaissance verify model.onnx model.golden.safetensors
"""
AUTOCAST_EXAMPLES = """examples:
  python -m renaissance autocast model.onnx model.golden.safetensors --precision fp16 --device cuda --out peer.json
  python -m renaissance autocast --cases goldens/ --precision bf16 --device cuda --replays 4 --out peers/

then, where the engine is:
  renaissance verify model.onnx model.golden.safetensors --device cuda --precision fp16 --peer peer.json
"""


class Problem(Exception):
    """What is wrong, for people; __cause__ tells where."""


# ---- arguments ------------------------------------------------------------------------------


def whole(least, most=None):
    """A whole number from least to most."""
    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or value < least or (most is not None and value > most):
            wanted = f'of at least {least}' if most is None else f'from {least} to {most}'
            raise argparse.ArgumentTypeError(f'{text!r} is not a whole number {wanted}')
        return value
    return parse


def number(least, most=math.inf, above=False):
    """A finite number of at least (above: more than) least and below most."""
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and (value > least if above else value >= least) and value < most):
            wanted = f'{"above" if above else "of at least"} {least:g}'
            wanted += f' and below {most:g}' if math.isfinite(most) else ''
            raise argparse.ArgumentTypeError(f'{text!r} is not a finite number {wanted}')
        return value
    return parse


def weighted_outputs(text):
    """'logits:1.0,aux:0.3' as a dict; a weight that isn't given is 1."""
    weight, heads = number(0, above=True), {}
    for item in text.split(','):
        name, colon, share = item.rpartition(':')
        if not colon:
            name, share = item, '1'
        if not name or name in heads:
            raise argparse.ArgumentTypeError(f'{text!r} is not OUTPUT[:WEIGHT],... with each output once')
        heads[name] = weight(share)
    return heads


def torch_device(text):
    kind, colon, index = text.partition(':')
    if text not in ('cpu', 'cuda') and not (kind == 'cuda' and colon and index.isdecimal()):
        raise argparse.ArgumentTypeError(f'{text!r} is not cpu, cuda or cuda:N')
    return text


def add_source(parser, required):
    group = parser.add_argument_group('the module')
    source = group.add_mutually_exclusive_group(required=required)
    source.add_argument('--torchvision', metavar='NAME', help='a model of torchvision, e.g. resnet50')
    source.add_argument('--module', metavar='PACKAGE.MODULE:CALLABLE',
                        help='what to call, without arguments, for a module of your own; the current folder is '
                        'searched for PACKAGE, too')
    group.add_argument('--classes', type=whole(1), metavar='N',
                       help='num_classes of the torchvision model, at least 1 (default: its own, 1000)')
    if required:
        group.add_argument('--weights', metavar='NAME',
                           help="torchvision's pretrained weights, e.g. DEFAULT or IMAGENET1K_V1; they are "
                           'downloaded and have a fixed number of classes (default: random weights)')
    group.add_argument('--no-dropout', action='store_true',
                       help='set the probability of Dropout and stochastic depth to 0')
    group.add_argument('--seed', type=whole(0, 2**63 - 1), default=0, metavar='N',
                       help='seed of random weights' + ('' if required else ' and batches') + ' (default: 0)')
    parser.add_argument('--traceback', action='store_true', help='show where in Python an error comes from')


def make_parser():
    parser = argparse.ArgumentParser(prog='python -m renaissance', description='Files for Renaissance, from PyTorch.')
    commands = parser.add_subparsers(dest='command', required=True)

    exporter = commands.add_parser(
        'export', help='write a module as an ONNX file to be trained', epilog=EXPORT_EXAMPLES,
        description='Write a module as an ONNX file to be trained. A file of that name is replaced when the new '
        'one is complete and has passed the ONNX checker.', formatter_class=argparse.RawDescriptionHelpFormatter)
    add_source(exporter, required=True)
    exporter.add_argument('--size', type=whole(1, 65536), default=224, metavar='PIXELS',
                          help='height and width of the image (default: 224)')
    exporter.add_argument('--channels', type=whole(1, 65536), default=3, metavar='N',
                          help='channels of the image: 3 for colour, 1 for gray (default: 3)')
    exporter.add_argument('--batch', type=whole(1), metavar='N',
                          help='fix the batch size (default: the file takes any)')
    exporter.add_argument('--opset', type=whole(9), default=17, metavar='N',
                          help='version of the ONNX operators, from 9 to what torch can write (default: 17)')
    exporter.add_argument('--out', required=True, metavar='MODEL.onnx', help='file to write')
    exporter.set_defaults(run=run_export, needs=('torch', 'onnx', 'onnxscript'))

    golden = commands.add_parser(
        'golden', help="record PyTorch's numbers for `renaissance verify`", epilog=GOLDEN_EXAMPLES,
        description="Record PyTorch's numbers for a model, as `renaissance verify` reads them: three steps of SGD\n"
        'on random batches, computed in float64. The file itself is interpreted, or with --torchvision or\n'
        '--module that module is run with the weights of the file. Batches in which rounding decides are left\n'
        'out. In networks of full width, ResNet-18 say, that is every batch, unless the images are small\n'
        '(export --size 64) and the steps, too (--lr 1e-4): larger ones amplify rounding.', formatter_class=argparse.RawDescriptionHelpFormatter)
    golden.add_argument('model', metavar='MODEL.onnx', help='file of `export`, or another one with --module, '
                        '--torchvision or --trainable')
    add_source(golden, required=False)
    golden.add_argument('--out', required=True, metavar='GOLDEN.safetensors', help='file to write')
    golden.add_argument('--batch', type=whole(1), default=4, metavar='N',
                        help='images a step, where the file leaves that open (default: 4)')
    golden.add_argument('--loss', choices=['cross_entropy', 'pixel_cross_entropy'], default='cross_entropy',
                        help='of one class an image, or of one a pixel (default: cross_entropy)')
    golden.add_argument('--outputs', type=weighted_outputs, metavar='OUTPUT[:WEIGHT],...',
                        help='outputs in the loss and their weights (1), e.g. logits:1.0,aux:0.3 (default: the first '
                        'output)')
    golden.add_argument('--label-smoothing', type=number(0, 1), default=0.0, metavar='X',
                        help='at least 0 and below 1 (default: 0)')
    golden.add_argument('--lr', type=number(0, above=True), default=0.05, metavar='X',
                        help='learning rate, above 0 (default: 0.05; networks of full width: 1e-4)')
    golden.add_argument('--momentum', type=number(0, 1), default=0.9, metavar='X',
                        help='at least 0 and below 1 (default: 0.9)')
    golden.add_argument('--weight-decay', type=number(0), default=5e-4, metavar='X',
                        help='added to the gradient, at least 0 (default: 5e-4)')
    golden.add_argument('--nesterov', action='store_true', help="Nesterov's momentum")
    golden.add_argument('--trainable', metavar='NAME,...',
                        help='names of the parameters to train (default: what the file says)')
    golden.set_defaults(run=run_golden, needs=('torch', 'onnx', 'safetensors'))

    peer = commands.add_parser(
        'autocast', help="record PyTorch's own error in 16 bits or TF32 for `renaissance verify --peer`", epilog=AUTOCAST_EXAMPLES,
        description="Record how far PyTorch itself, under autocast, is from a golden file: the batches are replayed\n"
        'from the ONNX file with FP32 masters, and max|autocast - golden| of each tensor is written as JSON.\n'
        'Rounding decides which values cross the kink of a ReLU, so that one replay is one draw.',
        formatter_class=argparse.RawDescriptionHelpFormatter)
    peer.add_argument('model', nargs='?', metavar='MODEL.onnx', help='file that the golden file was recorded of')
    peer.add_argument('golden', nargs='?', metavar='GOLDEN.safetensors', help='file of `golden`')
    peer.add_argument('--cases', metavar='FOLDER', help='instead: every CASE.onnx with CASE.golden.safetensors there '
                      'that trains. Goes on after a case that fails, and exits with 1 then')
    peer.add_argument('--precision', choices=['fp16', 'bf16', 'tf32'], required=True,
                      help='type that autocast computes in; tf32: no autocast, FP32 tensors, on CUDA devices alone')
    peer.add_argument('--device', type=torch_device, default='cpu', metavar='DEVICE',
                      help='cpu, cuda or cuda:N, where PyTorch computes (default: cpu)')
    peer.add_argument('--replays', type=whole(1), default=1, metavar='N',
                      help='at least 1; those after the first begin with weights disturbed by half a unit in the last '
                      'place of that precision, and the largest error of each tensor counts (default: 1)')
    peer.add_argument('--out', required=True, metavar='PEER.json',
                      help='file to write; with --cases the folder for CASE.peer.json, made if need be')
    peer.add_argument('--traceback', action='store_true', help='show where in Python an error comes from')
    peer.set_defaults(run=run_autocast, needs=('torch', 'onnx', 'safetensors'), torchvision=None, module=None)
    return parser


# ---- what can be wrong before anything is computed --------------------------------------------


def check_packages(args):
    needs = args.needs + (('torchvision',) if args.torchvision else ())
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        raise Problem(f'{", ".join(missing)} missing in {sys.executable}: pip install {" ".join(missing)}')


def check_source(args):
    if not args.torchvision:
        for option in ('classes', 'weights'):
            if getattr(args, option, None) is not None:
                raise Problem(f'--{option} is for --torchvision')
    if args.module:
        package, colon, name = args.module.partition(':')
        if not (package and colon and name):
            raise Problem('--module takes PACKAGE.MODULE:CALLABLE, e.g. mynets.small:Net')


def check_place(path):
    if not path:
        raise Problem('--out is empty: it takes the name of what is to be written')
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise Problem(f"--out '{path}' can't be written: there is no folder {folder}")
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
        raise Problem(f"--out '{path}' can't be written: it is a pipe, a device or a socket")
    if os.path.isdir(path) or not os.access(folder, os.W_OK | os.X_OK):
        raise Problem(f"--out '{path}' can't be written: "
                      + ('it is a folder' if os.path.isdir(path) else f'no permission in {folder}'))


def check_inputs_stay(out, *given):
    """None of the files that are read, an ONNX file's external data among them, may be what is written."""
    from .exporter import external_files
    for path in given:
        others = external_files(path) if path.endswith('.onnx') and os.path.isfile(path) else []
        for read in (path, *others):
            if os.path.exists(out) and os.path.exists(read) and os.path.samefile(out, read):
                raise Problem(f"--out '{out}' would replace {read}, which is read")


# ---- the module -----------------------------------------------------------------------------


def torchvision_module(args):
    import torchvision
    names = torchvision.models.list_models()
    if args.torchvision not in names:
        import difflib
        near = difflib.get_close_matches(args.torchvision, names, 3)
        raise Problem(f"torchvision {torchvision.__version__} has no model '{args.torchvision}'"
                      + (f'; did you mean {" or ".join(near)}?' if near else ''))
    options = {} if args.classes is None else {'num_classes': args.classes}
    weights = getattr(args, 'weights', None)
    if weights is None and args.torchvision in ('googlenet', 'inception_v3'):
        options.update(aux_logits=False, init_weights=True)
    if weights is not None:
        known = torchvision.models.get_model_weights(args.torchvision)
        if weights not in known.__members__:
            raise Problem(f"{args.torchvision} has no weights '{weights}'; there are "
                          + ', '.join(known.__members__))
    try:
        return torchvision.models.get_model(args.torchvision, weights=weights, **options)
    except OSError as problem:
        raise Problem(f'weights of {args.torchvision} could not be downloaded: {problem}') from problem
    except ValueError as problem:
        raise Problem(f'{args.torchvision}: {problem}') from problem


def own_module(args):
    package, _, name = args.module.partition(':')
    sys.path.insert(0, '')
    try:
        found = importlib.import_module(package)
    except Exception as problem:  # whatever the user's code raises
        missing = isinstance(problem, ModuleNotFoundError) and problem.name and package.startswith(problem.name)
        raise Problem(f"--module: there is no Python module '{package}' here" if missing else
                      f"--module: '{package}' can't be imported: {told(problem)}") from problem
    try:
        make = getattr(found, name)
    except AttributeError as problem:
        raise Problem(f"--module: '{package}' has no '{name}'") from problem
    try:
        module = make()
    except Exception as problem:
        raise Problem(f'--module: {args.module}() fails: {told(problem)}') from problem
    import torch
    if not isinstance(module, torch.nn.Module):
        raise Problem(f'--module: {args.module}() is a {type(module).__name__}, not a torch.nn.Module')
    return module


def build_module(args):
    import torch
    torch.manual_seed(args.seed)
    module = torchvision_module(args) if args.torchvision else own_module(args)
    if args.no_dropout:
        for m in module.modules():
            if isinstance(m, torch.nn.modules.dropout._DropoutNd) or type(m).__name__ == 'StochasticDepth':
                m.p = 0.0
    return module.float()


# ---- commands -------------------------------------------------------------------------------


def run_export(args):
    import torch

    from .exporter import export
    module = build_module(args)
    example = torch.randn(args.batch or 2, args.channels, args.size, args.size)
    try:
        report = export(module, example, args.out, dynamic_batch=args.batch is None, opset=args.opset,
                        input_names=['image'])
    except (RuntimeError, TypeError, IndexError) as problem:  # of the module's forward(), or of torch
        raise Problem(f'the module could not be exported with images of {args.channels}x{args.size}x{args.size}: '
                      f'{told(problem)}') from problem
    print(report)


def run_golden(args):
    from .exporter import load_initializers, load_model
    from .recorder import record_golden
    load_model(args.model)
    check_inputs_stay(args.out, args.model)
    module = None
    if args.torchvision or args.module:
        module = build_module(args)
        load_initializers(module, args.model)
    report = record_golden(args.model, args.out, module, batch=args.batch, loss=args.loss, outputs=args.outputs,
                           label_smoothing=args.label_smoothing, lr=args.lr, momentum=args.momentum,
                           weight_decay=args.weight_decay, nesterov=args.nesterov, seed=args.seed,
                           trainable=args.trainable.split(',') if args.trainable else None)
    print(str(report).splitlines()[-1])


def check_device(device):
    import torch
    kind, _, index = device.partition(':')
    if kind == 'cuda' and int(index or 0) >= torch.cuda.device_count():
        raise Problem(f'--device {device}: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices')


def run_autocast(args):
    from .autocast import record_peer, record_peers
    from .exporter import load_model
    options = dict(precision=args.precision, device=args.device, replays=args.replays)
    if args.cases is None:
        if args.golden is None:
            raise Problem('autocast takes MODEL.onnx and GOLDEN.safetensors, or --cases FOLDER')
        load_model(args.model)
        check_inputs_stay(args.out, args.model, args.golden)
        check_device(args.device)
        print(record_peer(args.model, args.golden, args.out, **options))
        return
    if args.model is not None:
        raise Problem('autocast takes MODEL.onnx and GOLDEN.safetensors, or --cases FOLDER, not both')
    if not os.path.isdir(args.cases):
        raise Problem(f"--cases '{args.cases}' is no folder")
    check_device(args.device)
    os.makedirs(args.out, exist_ok=True)
    failed, written = record_peers(args.cases, args.out, told=told, **options)
    if failed:
        raise Problem(f'{len(failed)} of {len(failed) + written} cases failed: {", ".join(failed)}')
    if not written:
        raise Problem(f"--cases '{args.cases}' has no CASE.onnx with a CASE.golden.safetensors that trains")


def told(problem):
    """An exception in one line."""
    lines = str(problem).strip().splitlines()
    kind = type(problem).__name__
    if isinstance(problem, OSError) and problem.filename and problem.strerror:
        return f'{problem.filename}: {problem.strerror}'
    if isinstance(problem, (Problem, ValueError, NotImplementedError)) and lines:
        return lines[0]
    return f'{kind}: {lines[0]}' if lines else kind


def main(argv=None):
    args = make_parser().parse_args(argv)
    try:
        check_packages(args)
        check_source(args)
        if getattr(args, 'cases', None) is None:  # with them it is a folder
            check_place(args.out)
        args.run(args)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as problem:  # people want the reason; --traceback tells the place
        if args.traceback:
            traceback.print_exc()
        expected = isinstance(problem, (Problem, ValueError, NotImplementedError, OSError))
        hint = '' if expected or args.traceback else ' (--traceback shows where)'
        sys.exit(f'error: {told(problem)}{hint}')


if __name__ == '__main__':
    main()
