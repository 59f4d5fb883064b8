// Package examples owns one folder for each kind of network: networks, pods and a README that a user can follow. It
// has no code but the tests of these files.
package examples
