// Package ovndbtest owns the real ovsdb-servers for tests, a reader of their rows that shares no code with the tested
// packages, and a proxy that counts and disturbs transactions. It may import no other package of this module.
package ovndbtest
