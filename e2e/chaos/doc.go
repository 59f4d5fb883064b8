// Package chaos owns `make chaos`: tests that break what the pods' networks depend on, while pods come and go. They keep
// a history of what was acknowledged, compare it with the databases, and print one table of what was lost. The tests have
// the build tag chaos. The package may hold nothing that the product needs.
package chaos
