// Package view owns the reading of all networks for people: what NB stores about each network, how full its subnets
// are, and which ports are on it. It writes nothing.
package view
