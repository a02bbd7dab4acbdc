#!/bin/sh
# Write the hashed lists again, from pyproject.toml and constraints.txt: `pip install uv`, then
# `sh tools/lock.sh`. Hashes are of all files that PyPI has of a version, for every platform.
set -eu
cd "$(dirname "$0")/.."
lock() {
    uv pip compile --quiet --generate-hashes --universal --python-version 3.11.5 --no-annotate \
        --default-index https://pypi.org/simple --custom-compile-command 'sh tools/lock.sh' "$@"
}
lock pyproject.toml --constraint constraints.txt --output-file requirements/runtime.txt
lock pyproject.toml --extra dev --constraint constraints.txt --output-file requirements/dev.txt
lock requirements/release.in --output-file requirements/release.txt
