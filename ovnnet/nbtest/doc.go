// Package nbtest owns the rig of the tests that need OVN's Northbound database: a server, clients of controllers and
// agents, and what tests expect in the rows.
package nbtest
