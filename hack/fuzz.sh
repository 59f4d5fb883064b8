#!/bin/sh
# Runs every fuzz target of the module for the given time each.
set -eu
time=${1:-10s}
go list -f '{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}' ./... | while read -r dir files; do
	[ -n "$files" ] || continue
	# shellcheck disable=SC2086 # a list of file names
	(cd "$dir" && grep -ho '^func Fuzz[A-Za-z0-9_]*' $files) | sed 's/^func //' | while read -r target; do
		echo "fuzz $dir $target for $time"
		(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" . </dev/null)
	done
done
