// Package uninstall owns the steps that take ovn-multinet off the nodes of a cluster before its objects are deleted. It
// runs once, in a Job.
package uninstall
