#!/bin/sh
# Compile pyproject.toml into hashed requirements: each file contains the one before it.
# They are compiled with the oldest Python we support, and carry no registry's address.
set -eu
cd "$(dirname "$0")/../.."
compile() {
    .venv/bin/python -m piptools compile --quiet --generate-hashes --strip-extras --allow-unsafe \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header "$@" pyproject.toml
}
requirements=deploy/requirements
compile --output-file "$requirements/client.txt"
compile --constraint "$requirements/client.txt" --extra server --output-file "$requirements/server.txt"
compile --constraint "$requirements/server.txt" --extra server --extra test --output-file "$requirements/test.txt"
# The local AWS of tests has an environment of its own: it pins libraries that we use, too.
printf 'ministack\n' | .venv/bin/python -m piptools compile --quiet --generate-hashes --strip-extras --allow-unsafe \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header \
    --output-file "$requirements/aws-standin.txt" -
# So has the FOCUS validator, which needs Python 3.12 and binaries built for an older numpy.
if python3.12 -m piptools --version >/dev/null 2>&1; then
    printf 'focus_validator\npyarrow<21\n' | python3.12 -m piptools compile --quiet --generate-hashes --strip-extras \
        --allow-unsafe --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header \
        --output-file "$requirements/focus-validator.txt" -
fi
