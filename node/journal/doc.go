// Package journal owns the files in the node's state folder: what each sandbox has, what the agent still has to
// release, and the locks and marks of sandboxes. Plugin, agent and installer read and write these files only through
// this package. It may not call the agent, run a program or touch a link.
package journal
