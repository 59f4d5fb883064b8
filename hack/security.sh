#!/bin/sh
# Runs every test of the boundaries in its long form, and fuzzes every parser that a tenant reaches. Then it prints what the
# tests counted. It exits with 1 when a test failed or was skipped.
set -eu
inputs=${1:-300000}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# run ARGUMENTS...: go test of the boundaries, shown without the lines that only say that a test began.
run() {
	OVN_MULTINET_LONG=1 make -s "$@" 2>&1 | tee -a "$log" | grep -vE '^ *=== |no test files|no tests to run' || true
}

run test FLAGS='-v -count=1 -timeout=60m -run ^TestBoundary'
run e2e RUN='^TestBoundary' FLAGS=-v
sh hack/fuzz.sh "$inputs"
sh hack/vulncheck.sh

echo
echo "what the tests counted:"
sed -nE 's/^ *=== ATTR +([^ ]+) boundary\.([^ ]+) (.*)$/  \2: \3 (\1)/p' "$log" | sort
passed=$(grep -cE '^ *--- PASS' "$log" || true)
failed=$(grep -cE '^ *--- FAIL|^FAIL|^panic:|\*\*\*' "$log" || true)
skipped=$(grep -cE '^ *--- SKIP' "$log" || true)
echo "$passed passed, $failed failed, $skipped skipped"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
