// Package program owns what the main function of each daemon and command needs: flags that the environment may also
// set, the log, the end by a signal and --version. It links no client of Kubernetes and no OVSDB library.
package program
