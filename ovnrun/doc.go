// Package ovnrun owns how OVN's own daemons run on the nodes of a cluster whose chart brings OVN: their files, their
// arguments, the membership of a database in its raft, and the settings of Open vSwitch. It runs the programs of
// Debian's packages, and contains nothing of the networks of pods.
package ovnrun
