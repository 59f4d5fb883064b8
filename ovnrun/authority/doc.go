// Package authority owns the certificates of OVN's databases and of their clients, when the chart runs OVN and no other
// program makes certificates: the authority in a Secret, and which program on which node gets which certificate. It
// speaks to no database.
package authority
