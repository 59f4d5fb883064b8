// Package nbtest owns the equipment of the tests that need OVN's Northbound database: a server, clients as controllers
// and agents use them, and the rows that tests expect.
package nbtest
