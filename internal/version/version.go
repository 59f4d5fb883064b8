// Package version owns the version of the project. A release changes two files here: VERSION, the version of this
// source tree, and PREVIOUS, the commit of the version before.
package version

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var file string

// Number is the version of this source tree. The git tag of a release is "v" and this number.
var Number = strings.TrimSpace(file)

// String returns what --version prints: the number, the git commit if `go build` recorded one, and the version of Go.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Number
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	var details []string
	if revision := Revision(info); revision != "" {
		details = append(details, "commit "+revision)
	}
	if info.GoVersion != "" {
		details = append(details, info.GoVersion)
	}
	if len(details) == 0 {
		return Number
	}
	return Number + " (" + strings.Join(details, ", ") + ")"
}

// Revision returns the git commit that a program was built from, or "" if `go build` recorded none. The suffix
// "-dirty" says that the work tree had uncommitted changes.
func Revision(info *debug.BuildInfo) string {
	revision, suffix := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + suffix
}
