// Package docs owns the pages of the documentation that the command line prints.
package docs

import _ "embed" // of a page

// Errors is the page of the plugin's error codes.
//
//go:embed errors.md
var Errors string
