#!/bin/sh
# Runs each fuzz target of the module with this number of inputs. It sets no time, because Go before 1.27 may report the
# end of the time as a failure of the target (go.dev/issue/75804).
set -eu
inputs=${1:-20000}
go list -f '{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}' ./... | while read -r dir files; do
	[ -n "$files" ] || continue
	# shellcheck disable=SC2086 # a list of file names
	(cd "$dir" && grep -ho '^func Fuzz[A-Za-z0-9_]*' $files) | sed 's/^func //' | while read -r target; do
		echo "fuzz $dir $target with $inputs inputs"
		(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "${inputs}x" . </dev/null)
	done
done
