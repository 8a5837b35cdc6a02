#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every parity case passes `verify`, or is refused for the reasons listed here.

usage: parity_test.py PROGRAM          (RENAISSANCE_PARITY names the folder; without it: skipped)
"""
import glob
import json
import os
import re
import subprocess
import sys

# What isn't supported yet, by model: the operators that every refusal has to name, and no others.
REFUSED = {
    'unet': {'ConvTranspose'},
    'upsample_zoo': {'Resize', 'DepthToSpace'},
}
# Where the importer alone would train other tensors than the golden file: case -> names in the notes.
OTHER_CHOICES = {}


def verify(program, model, golden):
    done = subprocess.run([program, 'verify', model, golden, '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def check(program, folder, case):
    """A line of what is wrong, or None; and whether the case trained."""
    model = case.split('.')[0]
    code, out, err = verify(program, f'{folder}/{case}.onnx', f'{folder}/{case}.golden.safetensors')
    if model in REFUSED:
        named = set(re.findall(r"^  (\w+) '", err, re.MULTILINE))
        if code != 2 or named != REFUSED[model]:
            return f'{case}: exit code {code}, names {sorted(named)}; expected a refusal that names {sorted(REFUSED[model])}\n{err}', False
        return None, False
    if code != 0:
        failures = json.loads(out)['failures'] if out else []
        listed = ''.join(f"\n  {f['tensor']}: {f['ratio']:.3g} of its bound" for f in failures[:5])
        return f'{case}: exit code {code}, {len(failures)} failures {err}{listed}', False
    result = json.loads(out)
    choices = {note.split("'")[1] for note in result['notes'] if 'the importer alone would' in note}
    if choices != OTHER_CHOICES.get(case, set()):
        return f'{case}: the importer alone would choose differently for {sorted(choices)}', False
    return None, 'gradient' in result['groups']


def main():
    folder = os.environ.get('RENAISSANCE_PARITY', '')
    cases = sorted(os.path.basename(g)[:-len('.golden.safetensors')] for g in glob.glob(f'{folder}/*.golden.safetensors'))
    if not folder or not cases:
        print('skipped: RENAISSANCE_PARITY names no folder of parity cases')
        return 77
    problems, trained = [], 0
    for case in cases:
        problem, has_trained = check(sys.argv[1], folder, case)
        trained += has_trained
        if problem:
            problems.append(problem)
    print('\n'.join(problems))
    print(f'{len(cases)} cases, {trained} passed with training, {len(problems)} problems')
    return 1 if problems or trained < 30 else 0


if __name__ == '__main__':
    sys.exit(main())
