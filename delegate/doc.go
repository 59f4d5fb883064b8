// Package delegate owns the running of delegates, which are other CNI plugins: their configurations, limits, results
// and device information. It may run only programs that the node's conflist allows. It checks every plan before it
// trusts the plan.
package delegate
