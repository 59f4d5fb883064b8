// Package scenarios owns what the product does on a node with virtual functions and a kernel with Open vSwitch's
// datapath. It may run only in the guest that the command above it boots.
package scenarios
