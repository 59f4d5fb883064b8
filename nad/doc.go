// Package nad owns what users write: the networks annotation of a pod, and the NetworkAttachmentDefinitions that the
// annotation names. It makes an ordered list of attachments of them, and builds the network-status. It may touch
// neither netlink nor OVSDB, and reads NADs only by a function of the caller.
package nad
