// Package nbrows owns the form of the rows of OVN networks, routers and gateways, and the comparison of wanted and
// present rows. It makes no decision about networks.
package nbrows
