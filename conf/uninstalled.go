package conf

// Uninstalled is what a program on a node logs when an uninstall has nothing left to do there. The uninstall of the
// cluster waits for it.
const Uninstalled = "uninstalled: nothing is left to do on this node"
