// Package failpoint owns the named places at which a test kills this process, to prove that a crash there loses
// nothing. A product build has no failpoints; the build tag failpoint adds them.
package failpoint

// Env is the environment variable that names the failpoint that kills the process.
const Env = "OVN_MULTINET_FAILPOINT"
