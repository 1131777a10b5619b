#!/bin/sh
# The parts of the test command: each says when it begins and when it has passed; the last lines of all name those that did not.
#
#   tools/part.sh begin part "what is tried"    before a part's commands
#   tools/part.sh passed part                   after the last one: a part that fails or is killed never gets there
#   tools/part.sh summary part ...              one line for each part, and the tests that failed; exit status 1 if any part failed
#   tools/part.sh failed-tests part             where a part's tools write the names of the tests that failed, a line each
#
# Notes of this run are in build/parts.
set -u
notes=build/parts
# As many names as one looks at; the output of the part has all.
names=20

word=$1
shift
case $word in
begin)
    mkdir -p "$notes"
    rm -f "$notes/$1.passed" "$notes/$1.failed"
    date +%s >"$notes/$1.began"
    printf '\n== %s ==\n' "$2"
    ;;
passed)
    echo "$(($(date +%s) - $(cat "$notes/$1.began")))" >"$notes/$1.passed"
    ;;
failed-tests)
    echo "$PWD/$notes/$1.failed"
    ;;
summary)
    status=0
    printf '\n== summary ==\n'
    for part in "$@"; do
        if [ -f "$notes/$part.passed" ]; then
            printf 'passed  %s (%s s)\n' "$part" "$(cat "$notes/$part.passed")"
        fi
    done
    for part in "$@"; do
        [ -f "$notes/$part.passed" ] && continue
        status=1
        if [ -f "$notes/$part.began" ]; then
            printf 'FAILED  %s\n' "$part"
        else
            printf 'NOT RUN %s\n' "$part"
        fi
        if [ -f "$notes/$part.failed" ]; then
            awk -v most="$names" '!seen[$0]++ && ++count <= most { print "          " $0 }
                END { if (count > most) print "          and " count - most " more" }' "$notes/$part.failed"
        fi
    done
    exit "$status"
    ;;
*)
    echo "tools/part.sh: no such word: $word" >&2
    exit 2
    ;;
esac
