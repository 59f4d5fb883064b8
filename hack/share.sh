#!/bin/sh
# Prints a -run pattern for one of N shares of a package's tests: share.sh N PACKAGE [TAGS]. The number of commits chooses
# the share, so N runs in a row on N commits run all tests. The pattern has \z, because make reads a $ as a variable.
set -eu
shares=$1 package=$2 tags=${3:-}
turn=$(($(git rev-list --count HEAD) % shares))
go test -tags "$tags" -list '^Test' "$package" | grep '^Test' | awk -v n="$shares" -v turn="$turn" '
	NR % n == turn { list = list (list == "" ? "" : "|") $1 }
	END { if (list == "") exit 1; print "^(" list ")\\z" }'
