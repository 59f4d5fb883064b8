#!/bin/sh
# Compares the benchmarks of the work tree with those of another revision: bench.sh REVISION FOLDER...
# Both run in turns, so that a change of the machine's load meets both. COUNT is the number of turns; FLAGS has further
# flags of the test programs, such as -test.bench=Pool.
set -eu
base=$1
shift
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base"; rm -rf "$dir"' EXIT
git worktree add -q --detach "$dir/base" "$base"
ln -s "$PWD" "$dir/new"

for side in base new; do
	for folder in "$@"; do
		(cd "$dir/$side" && go test -c -o "$dir/$side-$(echo "$folder" | tr / -).test" "./$folder")
	done
done
for turn in $(seq "${COUNT:-6}"); do
	for side in base new; do
		for folder in "$@"; do
			echo "turn $turn: $side $folder" >&2
			(cd "$dir/$side/$folder" && ${AS_ROOT:-} "$dir/$side-$(echo "$folder" | tr / -).test" \
				-test.run='^$' -test.bench=. ${FLAGS:-}) >>"$dir/$side.txt"
		done
	done
done
go tool -modfile=hack/tools/go.mod benchstat "base=$dir/base.txt" "new=$dir/new.txt"
