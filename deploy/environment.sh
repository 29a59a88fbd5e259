#!/bin/sh
# Make .venv and install hashed requirements into it, once for each change of the requirements.
#   deploy/environment.sh server|test
# An interrupted installation is noticed and begun anew, for it may have left half a package.
set -eu
cd "$(dirname "$0")/.."
kind=$1
requirements=deploy/requirements/$kind.txt
stamp=.venv/installed-$kind
unfinished=.venv/unfinished

digest=$(cksum "$requirements")
is_installed() {
    [ -f ".venv/installed-$1" ] && [ "$(cat ".venv/installed-$1")" = "$(cksum "deploy/requirements/$1.txt")" ]
}
# The command `clockhouse` and what users import, from this folder as it is. An environment that is a link
# belongs to another folder.
offer() {
    [ ! -L .venv ] || return 0
    packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    [ -x .venv/bin/clockhouse ] && [ -f "$packages/clockhouse.pth" ] && return 0
    printf '%s\n%s\n' "$PWD" "$PWD/controlplane/client/package" >"$packages/clockhouse.pth"
    printf '#!/bin/sh\nexec "%s" -m clockhouse "$@"\n' "$PWD/.venv/bin/python" >.venv/bin/clockhouse
    chmod +x .venv/bin/clockhouse
}

# What tests need contains what the server needs.
if { is_installed "$kind" || is_installed test; } && [ ! -e "$unfinished" ] && .venv/bin/python -c "" 2>/dev/null; then
    offer
    exit 0
fi

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Clockhouse needs Python 3.11 or newer; '$python' is not. Set PYTHON=… to one that is." >&2
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "'$python' cannot make environments. On Debian: apt-get install python3-venv" >&2
    exit 1
fi

echo "Making the environment in .venv ($kind) ..." >&2
if [ -e "$unfinished" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    # A folder that was moved, or was made by another Python, is of no use either.
    "$python" -m venv --clear .venv
fi
touch "$unfinished"
rm -f "$stamp"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
    --only-binary :all: --requirement "$requirements" >&2
echo "$digest" >"$stamp"
rm -f "$unfinished"
offer
