#!/bin/sh
# The parts of the test command: each prints its begin and its end; the last lines name the failed ones.
#
#   tools/part.sh begin part "what is tried"    before a part's commands
#   tools/part.sh passed part                   after the last one: a part that fails or is killed never gets there
#   tools/part.sh again part command ...        try a few failed tests once more: runs the command with their names appended
#   tools/part.sh summary part ...              one line for each part, and the tests that failed; exit status 1 if any part failed
#   tools/part.sh failed-tests part             where a part's tools write the names of the tests that failed, a line each
#
# Notes of this run are in build/parts.
set -u
notes=build/parts
# As many names as a reader takes in; the output of the part has all.
names=20
# More failures than these are no accident of a busy machine.
again_at_most=3

word=$1
shift
case $word in
begin)
    mkdir -p "$notes"
    rm -f "$notes/$1.passed" "$notes/$1.failed" "$notes/$1.unsteady"
    date +%s >"$notes/$1.began"
    printf '\n== %s ==\n' "$2"
    ;;
passed)
    echo "$(($(date +%s) - $(cat "$notes/$1.began")))" >"$notes/$1.passed"
    ;;
failed-tests)
    echo "$PWD/$notes/$1.failed"
    ;;
again)
    part=$1
    shift
    failed=$notes/$part.failed
    unsteady=$notes/$part.unsteady
    [ -s "$failed" ] || exit 1
    sort -u "$failed" >"$unsteady"
    if [ "$(wc -l <"$unsteady")" -gt "$again_at_most" ]; then
        rm -f "$unsteady"
        exit 1
    fi
    while IFS= read -r name; do
        set -- "$@" "$name"
    done <"$unsteady"
    printf '\n== once more, with nothing beside them: the tests of %s that failed ==\n' "$part"
    "$@" && rm -f "$failed" && exit 0
    rm -f "$unsteady"
    exit 1
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
        [ -f "$notes/$part.passed" ] && [ -f "$notes/$part.unsteady" ] || continue
        printf 'UNSTEADY %s: these failed, and passed alone; a fault of theirs or of the product, to be found\n' "$part"
        sed 's/^/          /' "$notes/$part.unsteady"
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
