// Package scenarios owns what the product does on a real Kubernetes, run from its images by its manifests. It may use
// nothing of the product but what is shipped.
package scenarios
