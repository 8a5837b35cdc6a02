#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the last "top1" in a file of JSON lines, as `renaissance train|eval --json` writes them, in percent.

usage: top1.py FILE
"""
import json
import sys


def last_top1(value):
    found = None
    if isinstance(value, dict):
        for key, inner in value.items():
            number = inner if key == 'top1' and isinstance(inner, (int, float)) else last_top1(inner)
            found = found if number is None else number
    elif isinstance(value, list):
        for inner in value:
            number = last_top1(inner)
            found = found if number is None else number
    return found


def main():
    with open(sys.argv[1], encoding='utf-8') as lines:
        top1 = last_top1([json.loads(line) for line in lines if line.startswith('{')])
    if top1 is None:
        sys.exit(f'no top1 in {sys.argv[1]}')
    print(f'{100 * top1:.2f}')


if __name__ == '__main__':
    main()
