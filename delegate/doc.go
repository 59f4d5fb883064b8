// Package delegate owns the running of delegates, which are other CNI plugins: their configurations, limits,
// results and device information. It may run only programs that the node's conflist allows, and trusts no plan that
// it has not checked.
package delegate
