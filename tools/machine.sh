#!/bin/sh
# Checks the machine: it needs Python 3.11 or newer with venv, and Node 20 or newer with npm. One line names what is missing.
#
#   tools/machine.sh check    print what is installed; everything missing is reported together, before any download
#   tools/machine.sh venv     make .venv, again if the present one does not run (moved folder, removed interpreter)
#
# $PYTHON names the interpreter; without it the first on PATH that is new enough and has venv is taken.
set -u

fail() {
    printf 'headgate: %s\n' "$1" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

has_venv() {
    "$1" -c 'import venv, ensurepip' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer; set PYTHON to one that is."
        has_venv "$PYTHON" || fail "PYTHON=$PYTHON has no venv module; set PYTHON to one that has it, or install it."
        echo "$PYTHON"
        return
    fi
    without_venv=
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        is_new_enough "$name" || continue
        if has_venv "$name"; then
            echo "$name"
            return
        fi
        without_venv=${without_venv:-$name}
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv has no venv module. Install it (Debian, Ubuntu: apt-get install python3-venv) and run make again."
    fi
    found=$(python3 --version 2>/dev/null) || found="no python3"
    fail "Python 3.11 or newer is needed, and $found is what is here. Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python) or set PYTHON=/path/to/python3.11."
}

find_node() {
    version=$(node --version 2>/dev/null) ||
        fail "Node 20 or newer is needed and there is none. Install it from https://nodejs.org or with your system's packages (nodejs, npm)."
    major=${version#v}
    major=${major%%.*}
    [ "$major" -ge 20 ] 2>/dev/null || fail "Node 20 or newer is needed, and $version is what is here ($(command -v node))."
    command -v npm >/dev/null 2>&1 || fail "npm is needed beside node and there is none. Install it (Debian, Ubuntu: apt-get install npm)."
    echo "$version"
}

check() {
    missing=
    python=$(find_python) || missing=yes
    node=$(find_node) || missing=yes
    [ -z "$missing" ] || exit 1
    echo "headgate: found $("$python" --version) and Node $node"
}

make_venv() {
    if is_new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || exit 1
    "$python" -m venv --clear .venv
}

case ${1:-} in
check) check ;;
venv) make_venv ;;
*) fail "usage: tools/machine.sh check|venv" ;;
esac
