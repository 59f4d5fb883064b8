// Package failpoint owns the named places at which a test may kill this process, to show that nothing is lost
// there; it may do nothing in a product build. A build with the tag failpoint has them.
package failpoint

// Env is the environment variable that names the failpoint to die at.
const Env = "OVN_MULTINET_FAILPOINT"
