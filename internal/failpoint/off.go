//go:build !failpoint

package failpoint

// Hit does nothing in a product build: it is an empty function that the compiler removes.
func Hit(string) {}
