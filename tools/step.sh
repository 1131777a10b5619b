#!/bin/sh
# One step of a make target: prints one line, keeps the command's output in a log, shows that log only when it fails.
#
#   tools/step.sh "what is being done" log-name command [argument ...]
#
# The log is build/log/<log-name>.log. The exit status is the command's.
set -u
label=$1 log=build/log/$2.log
shift 2
mkdir -p build/log
printf 'headgate: %s ' "$label"
began=$(date +%s)
if "$@" >"$log" 2>&1 </dev/null; then
    printf '(%s s)\n' "$(($(date +%s) - began))"
    exit 0
else
    status=$?
fi
printf 'failed.\n'
# The cause is at one end of a log: npm's comes first, pip's last. The file has the lines between.
awk 'NR <= 12 { print "  | " $0; next } { last[NR % 25] = $0 }
    END { if (NR > 37) print "  | ..."; for (i = (NR > 37 ? NR - 24 : 13); i <= NR; i++) print "  | " last[i % 25] }' "$log" >&2
printf 'headgate: could not finish "%s" (exit status %s). Everything it said is in %s\n' "$label" "$status" "$log" >&2
exit "$status"
