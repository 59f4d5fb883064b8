#!/bin/sh
# Runs the tests of the security boundaries with many more inputs, fuzzes each parser that reads a tenant's text, and
# prints the counts of the tests. It exits with 1 when a test failed or was skipped.
set -eu
inputs=${1:-300000}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# run MAKE-ARGUMENTS...: shows the output without the line that each test begins with.
run() {
	OVN_MULTINET_LONG=1 make -s "$@" 2>&1 | tee -a "$log" | grep -vE '^ *=== |no test files|no tests to run' || true
}

run test FLAGS='-v -count=1 -timeout=60m -run ^TestBoundary'
run e2e RUN='^TestBoundary' FLAGS=-v
sh hack/fuzz.sh "$inputs"
sh hack/vulncheck.sh

echo
echo "counts of the tests:"
sed -nE 's/^ *=== ATTR +([^ ]+) boundary\.([^ ]+) (.*)$/  \2: \3 (\1)/p' "$log" | sort
passed=$(grep -cE '^ *--- PASS' "$log" || true)
failed=$(grep -cE '^ *--- FAIL|^FAIL|^panic:|\*\*\*' "$log" || true)
skipped=$(grep -cE '^ *--- SKIP' "$log" || true)
echo "$passed passed, $failed failed, $skipped skipped"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
