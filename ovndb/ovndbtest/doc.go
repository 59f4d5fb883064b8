// Package ovndbtest owns the real ovsdb-servers that tests run against, a reader of their rows that shares no code
// with what is tested, and a proxy that counts and disturbs transactions; it may import nothing of ours.
package ovndbtest
