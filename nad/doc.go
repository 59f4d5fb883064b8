// Package nad owns what users write, the networks annotation of a pod and the NetworkAttachmentDefinitions it
// names: it turns them into an ordered list of attachments and builds the network-status; it may touch neither
// netlink nor OVSDB, and reads NADs only through the function it is given.
package nad
