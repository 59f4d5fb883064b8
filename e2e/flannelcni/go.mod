// Builds the Flannel CNI plugin as containernetworking shipped it last, with a current CNI library, so that
// it speaks every version from 0.1.0 to 1.1.0. Nothing imports this module: the lab builds its tool.
module github.com/ovn-multinet/ovn-multinet/e2e/flannelcni

go 1.26.0

tool github.com/containernetworking/plugins/plugins/meta/flannel

require github.com/containernetworking/plugins v0.9.1

require github.com/containernetworking/cni v1.3.1

require (
	github.com/vishvananda/netns v0.0.4 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
	golang.org/x/sys v0.23.0 // indirect
)
