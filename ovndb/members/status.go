package members

// Status is what the daemons of a node with OVN's databases say of themselves, as JSON.
type Status struct {
	NB     Replica `json:"nb"`
	SB     Replica `json:"sb"`
	Northd string  `json:"northd"` // active, standby or paused; or why it says nothing
}

// Replica is what the node's server of a database says of its raft.
type Replica struct {
	// State is leader, follower, joining or removed; or why the server says nothing.
	State   string `json:"state"`
	Servers int    `json:"servers"` // of the raft
	// Silent are the addresses of the servers that a leader has not heard for some time.
	Silent []string `json:"silent,omitempty"`
}

// The states of a server in a raft.
const (
	Leader   = "leader"
	Follower = "follower"
	Joining  = "joining"
	Removed  = "removed"
)

// Active is the state of the northd that works.
const Active = "active"
