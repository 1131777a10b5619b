#!/bin/sh
# What the machine must bring: Python 3.11 or newer with venv, Node 20 or newer with npm. Says in one line what is missing.
#
#   tools/machine.sh python    print the interpreter to build .venv with ($PYTHON, else the first that is new enough)
#   tools/machine.sh node      print the version of node
#   tools/machine.sh venv      make .venv, anew if the one there does not run (moved folder, interpreter gone)
set -u

fail() {
    printf 'headgate: %s\n' "$1" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer; set PYTHON to one that is."
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    found=$(python3 --version 2>/dev/null) || found="no python3"
    fail "Python 3.11 or newer is needed, and $found is what is here. Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python) or set PYTHON=/path/to/python3.11."
}

check_node() {
    version=$(node --version 2>/dev/null) || fail "Node 20 or newer is needed and there is none. Install it from https://nodejs.org or with your system's packages (nodejs, npm)."
    major=${version#v}
    major=${major%%.*}
    [ "$major" -ge 20 ] 2>/dev/null || fail "Node 20 or newer is needed, and $version is what is here ($(command -v node))."
    command -v npm >/dev/null 2>&1 || fail "npm is needed beside node and there is none. Install it (Debian, Ubuntu: apt-get install npm)."
    echo "$version"
}

make_venv() {
    if [ -x .venv/bin/python ] && is_new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || exit 1
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
        fail "$python has no venv module. Install it (Debian, Ubuntu: apt-get install python3-venv) and run make again."
    "$python" -m venv --clear .venv
}

case ${1:-} in
python) find_python ;;
node) check_node ;;
venv) make_venv ;;
*) fail "usage: tools/machine.sh python|node|venv" ;;
esac
