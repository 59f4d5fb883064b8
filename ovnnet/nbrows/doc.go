// Package nbrows owns how the rows of OVN networks, routers and gateways look, and the comparison of wanted and present
// rows. It decides nothing about networks.
package nbrows
