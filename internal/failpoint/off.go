//go:build !failpoint

// Package failpoint owns the named places at which a test may kill this process, to show that nothing is
// lost there. In a product build there are none: Hit is an empty function that the compiler removes.
package failpoint

// Hit does nothing in a product build.
func Hit(string) {}
